//go:build unix && !linux

package environment

// shortage is implemented for Linux only.
func shortage(int) string { return "" }
