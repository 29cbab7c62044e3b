//go:build unix

package images

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// heldByProcess tells whether a process holds a file by a lock (flock).
func heldByProcess(file string) (bool, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
