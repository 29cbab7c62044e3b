//go:build linux || darwin

package kind

import "syscall"

// freeBytes is what unprivileged users can use on the disk of a folder; 0: that is unknown, or the folder is not on
// this machine.
func freeBytes(dir string) int64 {
	var is syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &is) != nil {
		return 0
	}
	return int64(is.Bavail) * int64(is.Bsize)
}
