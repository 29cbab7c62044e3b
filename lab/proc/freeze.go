package proc

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Freeze suspends the process and its group until thaw is called (SIGSTOP): its sockets stay open and do not answer. It
// returns when the process is suspended or has ended.
func (p *Process) Freeze() (thaw func()) {
	p.still.Lock()
	defer p.still.Unlock()
	p.freezers++
	p.signal(syscall.SIGSTOP)
	awaitStop(p.PID())
	return sync.OnceFunc(func() {
		p.still.Lock()
		defer p.still.Unlock()
		if p.freezers--; p.freezers == 0 {
			p.signal(syscall.SIGCONT)
		}
	})
}

// Freeze freezes every process, and lets none start, until thaw is called.
func (s *Supervisor) Freeze() (thaw func()) {
	s.mu.Lock()
	thaws := make([]func(), len(s.running))
	var all sync.WaitGroup
	for i, p := range s.running {
		all.Go(func() { thaws[i] = p.Freeze() })
	}
	all.Wait()
	return sync.OnceFunc(func() {
		for _, thaw := range thaws {
			thaw()
		}
		s.mu.Unlock()
	})
}

// Freeze freezes the present run; one that was started meanwhile is not frozen.
func (v *Service) Freeze() (thaw func()) { return v.Process().Freeze() }

// Hold ends the current run as Process.Stop does, and does not start the program again until release is called, once.
func (v *Service) Hold(ctx context.Context, grace time.Duration) (release func(), err error) {
	free := make(chan struct{})
	v.mu.Lock()
	v.holds = append(v.holds, free)
	p := v.current
	v.mu.Unlock()
	release = func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.holds = slices.DeleteFunc(v.holds, func(o chan struct{}) bool { return o == free })
		close(free)
	}
	if err := p.Stop(ctx, grace); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// held is closed when a caller of Hold releases the program; nil: it is not held.
func (v *Service) held() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.holds) == 0 {
		return nil
	}
	return v.holds[0]
}
