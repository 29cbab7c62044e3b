package proc

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
	// settled is how long a run must last for the next pause to be the first one again.
	settled = 30 * time.Second
)

// Service is a program that is restarted when it ends, after a pause that doubles, until it is stopped, as a kubelet
// restarts a static Pod.
type Service struct {
	super  *Supervisor
	spec   Spec
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	current *Process
	again   chan struct{} // closed when current is replaced
	ends    int
	last    Exit
	holds   []chan struct{} // each closed when its holder lets the program go
}

// Keep starts a program and restarts it when it ends.
func (s *Supervisor) Keep(spec Spec) (*Service, error) {
	ctx, cancel := context.WithCancel(context.Background())
	service := &Service{super: s, spec: spec, cancel: cancel, done: make(chan struct{}), again: make(chan struct{})}
	p, err := s.Start(spec)
	if err != nil {
		cancel()
		return nil, err
	}
	service.current = p
	go service.keep(ctx, p)
	return service, nil
}

func (v *Service) keep(ctx context.Context, p *Process) {
	defer close(v.done)
	pause := firstPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
		}
		exit, _ := p.Exit()
		v.mu.Lock()
		v.ends++
		v.last = exit
		v.mu.Unlock()
		if exit.Elapsed >= settled {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, lastPause)
		for held := v.held(); held != nil; held = v.held() {
			select {
			case <-ctx.Done():
				return
			case <-held:
			}
		}
		next, err := v.super.Start(v.spec)
		if err != nil {
			return // the supervisor is stopping, or the program does not exist: the log of the last run is kept
		}
		p = next
		v.mu.Lock()
		v.current = p
		close(v.again)
		v.again = make(chan struct{})
		v.mu.Unlock()
	}
}

// Ends returns how often the program has ended, and how it ended last.
func (v *Service) Ends() (int, Exit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ends, v.last
}

// Process returns the present run, or the last one during a pause.
func (v *Service) Process() *Process {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current
}

// Log returns the path of the program's log.
func (v *Service) Log() string { return v.spec.LogFile }

// Name returns the program's name in the status.
func (v *Service) Name() string { return v.spec.Name }

// Restart ends the present run as Process.Stop does and returns once the next one was started.
func (v *Service) Restart(ctx context.Context, grace time.Duration) error {
	v.mu.Lock()
	p, again := v.current, v.again
	v.mu.Unlock()
	if err := p.Stop(ctx, grace); err != nil {
		return err
	}
	select {
	case <-again:
		return nil
	case <-v.done:
		return fmt.Errorf("restart %s: %w", v.spec.Name, ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("restart %s: %w", v.spec.Name, ctx.Err())
	}
}

// Stop ends the program as Process.Stop does and does not start it again.
func (v *Service) Stop(ctx context.Context, grace time.Duration) error {
	v.cancel()
	<-v.done
	return v.Process().Stop(ctx, grace)
}
