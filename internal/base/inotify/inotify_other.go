//go:build !linux

package inotify

// Of counts none: the kernel is not Linux.
func Of(string, int) (Use, bool) { return Use{}, false }
