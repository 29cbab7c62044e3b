// Package folder is what a daemon has in its folder: the lock that makes it the only one there, its Unix sockets, and
// what it records for its next start.
package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/slot"
)

// State is what the daemon records for its next start. The data of the parts are in their own folders.
type State struct {
	path string
	mu   sync.Mutex
	data Data
}

// Data is the content of the state.
type Data struct {
	Version    int       `json:"version"`
	Slot       slot.Slot `json:"slot"`
	Management []Cluster `json:"management"`
	Workload   []Cluster `json:"workload,omitempty"`
}

// Cluster is a recorded cluster.
type Cluster struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // of a management cluster's address, of a workload cluster's ranges
	// Kubernetes is the version that a management cluster was created for; empty: none was asked for.
	Kubernetes string `json:"kubernetes,omitempty"`
}

const stateVersion = 1

// LoadState reads the state in a file; a file that does not exist is the state of a new folder.
func LoadState(path string) (*State, error) {
	s := &State{path: path, data: Data{Version: stateVersion}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &s.data); err != nil {
		return nil, fmt.Errorf("read the state %s: %w", path, err)
	}
	if s.data.Version != stateVersion || !s.data.Slot.Valid() {
		return nil, fmt.Errorf(
			"read the state %s: version %d, slot %d: another version of the program wrote it", path, s.data.Version,
			s.data.Slot)
	}
	return s, nil
}

// Update changes the state and writes it.
func (s *State) Update(change func(*Data) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Management, next.Workload = slices.Clone(s.data.Management), slices.Clone(s.data.Workload)
	if err := change(&next); err != nil {
		return err
	}
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := pki.WriteFile(s.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	s.data = next
	return nil
}

// Slot is the recorded part of 127.0.0.0/8; 0: none yet.
func (s *State) Slot() slot.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.Slot
}

// Management returns the recorded management clusters.
func (s *State) Management() []Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data.Management)
}

// Workload returns the clusters that have ranges of addresses.
func (s *State) Workload() []Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data.Workload)
}
