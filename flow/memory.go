package flow

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

// Memory is a journal that lasts as long as the process. What it keeps goes through the text of a journal, so what
// works with it works with a folder.
func Memory() Journal { return &memory{} }

type memory struct {
	mu     sync.Mutex
	last   Snapshot
	locked time.Time // zero: free
}

func (m *memory) Lock(context.Context) (func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.locked.IsZero() {
		return nil, &LockedError{PID: os.Getpid(), Host: "this process", Since: m.locked}
	}
	m.locked = time.Now()
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.locked = time.Time{}
		return nil
	}, nil
}

func (m *memory) Load(context.Context) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.last
	s.Steps = maps.Clone(s.Steps)
	return s, nil
}

func (m *memory) Save(_ context.Context, s Snapshot) error {
	data, err := encodeWhole(s)
	if err != nil {
		return err
	}
	if s, err = decodeText(data); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = s
	return nil
}

func (m *memory) Append(_ context.Context, change Snapshot) error {
	line, err := encodeLine(1, change)
	if err != nil {
		return err
	}
	if change, _, err = decodeLine(1, line); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last.apply(change)
	return nil
}
