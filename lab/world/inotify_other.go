//go:build unix && !linux

package world

// shortage is known of Linux only.
func shortage(int) string { return "" }
