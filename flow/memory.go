package flow

import (
	"context"
	"os"
	"sync"
	"time"
)

// Memory is a journal that lasts as long as the process. It goes through JSON
// like any other, so what works with it works with a folder.
func Memory() Journal { return &memory{} }

type memory struct {
	mu     sync.Mutex
	data   []byte
	lines  int       // the changes in data after its snapshot
	whole  int       // the snapshot's bytes
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
	return m.load()
}

func (m *memory) load() (Snapshot, error) {
	if m.data == nil {
		return Snapshot{}, nil
	}
	return decodeText(m.data)
}

func (m *memory) Save(_ context.Context, s Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.save(s)
}

func (m *memory) save(s Snapshot) error {
	data, err := encodeWhole(s)
	if err != nil {
		return err
	}
	m.data, m.lines, m.whole = data, 0, len(data)
	return nil
}

func (m *memory) Append(_ context.Context, change Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil || len(m.data)-m.whole > mostLog(m.whole) {
		s, err := m.load()
		if err != nil {
			return err
		}
		s.apply(change)
		return m.save(s)
	}
	line, err := encodeLine(m.lines+1, change)
	if err != nil {
		return err
	}
	m.data = append(m.data, line...)
	m.lines++
	return nil
}
