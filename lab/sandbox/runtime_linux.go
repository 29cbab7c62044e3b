package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Runtime creates the networks of Pods.
type Runtime struct {
	mu   sync.Mutex
	last netip.Addr
	used map[netip.Addr]bool
}

// New returns a runtime if the system permits namespaces in the calling process's: it tries all that a Pod needs. The
// process is to be in a network namespace of the lab's own, which New adds an address to.
func New() (*Runtime, error) {
	if err := inNamespace(nil, func() error { return addAddress("lo", netip.PrefixFrom(gateway, 32)) }); err != nil {
		return nil, fmt.Errorf("give the lab's network the address %s: %w", gateway, err)
	}
	r := &Runtime{last: podAddresses.Addr().Next(), used: map[netip.Addr]bool{}}
	network, err := r.NewNetwork()
	if err != nil {
		return nil, err
	}
	defer network.Close()
	dir, err := os.MkdirTemp("", "slipway-lab-sandbox")
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	tried := make(chan error)
	OnThread(func() { tried <- Container{Network: network, Hostname: "try", Root: dir}.Enter() })
	if err := <-tried; err != nil {
		return nil, err
	}
	return r, nil
}

// refused explains the system's error for a namespace; setting is the limit of their number below sysctl user.
func refused(what, setting string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: no more of them are allowed, see sysctl user.%s: %w", what, setting, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: this container or this system's settings forbid it: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// allot chooses an address that was not used for long.
func (r *Runtime) allot() (netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 1 << 16 {
		if r.last = r.last.Next(); !podAddresses.Contains(r.last) {
			r.last = podAddresses.Addr().Next().Next()
		}
		if !r.used[r.last] {
			r.used[r.last] = true
			return r.last, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address in %s is free", podAddresses)
}

func (r *Runtime) free(address netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.used, address)
}

// inNamespace calls do on a thread in a network namespace; nil is the process's own.
func inNamespace(file *os.File, do func() error) error {
	if file == nil {
		return do()
	}
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the Pod's network namespace: %w", err)
	}
	err = do()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, so that it ends with its goroutine and nothing else runs on it.
		return errors.Join(err, fmt.Errorf("leave the Pod's network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// OnThread calls do on a thread of its own, which ends with it, so that do may move the thread into namespaces. It does
// not wait for do.
func OnThread(do func()) {
	locked := make(chan struct{})
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and stands for the process in /proc: another one, while this one is taken.
			OnThread(do)
			runtime.UnlockOSThread()
			close(locked)
			return
		}
		close(locked)
		do()
	}()
	<-locked
}
