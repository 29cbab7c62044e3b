//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flow

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes an exclusive lock on the open file, without waiting. It ends
// when the file is closed, also by the death of the process, and children do
// not inherit it.
func tryLock(file *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
