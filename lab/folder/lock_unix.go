//go:build unix

package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/proc"
)

// Lock makes sure that only one daemon uses a folder. The kernel releases the lock when the process ends; the
// file names the process that holds it.
func Lock(ctx context.Context, path string, pid int) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the folder: %w", err)
	}
	err = proc.RetryWhileEnding(ctx, syscall.EWOULDBLOCK,
		func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err != nil {
		defer f.Close()
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("lock %s: process %s already runs in this folder: %w", path,
			strings.TrimSpace(string(holder)), err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, pid)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the folder: %w", err)
	}
	return f.Close, nil
}

// Held are folders of programs, and programs, that are in use. The zero value holds none.
type Held struct {
	mu       sync.Mutex
	releases []func() error
}

// Hold keeps a folder as HoldPrograms does, until Release.
func (h *Held) Hold(bin string) error {
	release, err := HoldPrograms(bin)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release)
	return nil
}

// Release lets all folders go.
func (h *Held) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, release := range h.releases {
		errs = append(errs, release())
	}
	h.releases = nil
	return errors.Join(errs...)
}

// HoldPrograms keeps a folder of programs, or one program, from being removed as unused, until release is called or the
// process ends.
func HoldPrograms(bin string) (release func() error, err error) {
	f, err := os.Open(bin)
	if err != nil {
		return nil, fmt.Errorf("hold the programs that are run: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		f.Close()
		return nil, fmt.Errorf("hold the programs that are run: lock %s: %w", bin, err)
	}
	return f.Close, nil
}

// owned says whether a file belongs to the current user.
func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
