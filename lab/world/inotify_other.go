//go:build unix && !linux

package world

// shortage is implemented for Linux only.
func shortage(int) string { return "" }
