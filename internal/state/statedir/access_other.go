//go:build !unix

package statedir

import "io/fs"

// writableBy is empty: modes do not say there who can write.
func writableBy(fs.FileInfo) string { return "" }
