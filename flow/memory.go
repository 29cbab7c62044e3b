package flow

import (
	"context"
	"encoding/json"
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
	var s Snapshot
	if m.data == nil {
		return s, nil
	}
	err := json.Unmarshal(m.data, &s)
	return s, err
}

func (m *memory) Save(_ context.Context, s Snapshot) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = data
	return nil
}
