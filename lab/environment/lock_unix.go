//go:build unix

package environment

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// lockFolder makes sure that only one daemon uses a folder. The kernel releases the lock when the process ends; the
// file names the process that holds it.
func lockFolder(ctx context.Context, path string, pid int) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the lab's folder: %w", err)
	}
	err = retryWhileEnding(ctx, syscall.EWOULDBLOCK,
		func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err != nil {
		defer f.Close()
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("lock the lab's folder %s: a lab already runs there (process %s): %w", path,
			strings.TrimSpace(string(holder)), err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, pid)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the lab's folder: %w", err)
	}
	return f.Close, nil
}

// holdPrograms keeps the folder of upstream programs from being removed as unused, until
// release is called or the process ends.
func holdPrograms(bin string) (release func() error, err error) {
	f, err := os.Open(bin)
	if err != nil {
		return nil, fmt.Errorf("the lab's programs: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		f.Close()
		return nil, fmt.Errorf("the lab's programs: lock %s: %w", bin, err)
	}
	return f.Close, nil
}

// owned says whether a file belongs to the current user.
func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
