//go:build linux && !amd64 && !arm64

package sandbox

// auditArch of an architecture for which there is no filter.
const auditArch = 0

var deniedHere []uint32
