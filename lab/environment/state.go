package environment

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// state is what the daemon records for its next start. The data of the parts are in their own folders.
type state struct {
	path string
	mu   sync.Mutex
	data stateData
}

type stateData struct {
	Version    int              `json:"version"`
	Slot       slot             `json:"slot"`
	Management []managementSpec `json:"management"`
}

// managementSpec is a recorded management cluster.
type managementSpec struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // of its address
}

const stateVersion = 1

func loadState(path string) (*state, error) {
	s := &state{path: path, data: stateData{Version: stateVersion}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &s.data); err != nil {
		return nil, fmt.Errorf("read the lab's state %s: %w; remove %s to begin a new lab", path, err, filepath.Dir(path))
	}
	if s.data.Version != stateVersion || !s.data.Slot.valid() {
		return nil, fmt.Errorf(
			"read the lab's state %s: version %d, slot %d: written by another version of the lab; remove %s to begin a new one",
			path, s.data.Version, s.data.Slot, filepath.Dir(path))
	}
	return s, nil
}

// update changes the state and writes it.
func (s *state) update(change func(*stateData) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Management = slices.Clone(s.data.Management)
	if err := change(&next); err != nil {
		return err
	}
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := pki.WriteFile(s.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	s.data = next
	return nil
}

func (s *state) slot() slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.Slot
}

func (s *state) management() []managementSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data.Management)
}

// ensureToken reads the API token of the simulated project, or creates one: 64 letters and digits, as the real ones.
func ensureToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token := rand.Text() + rand.Text() + rand.Text() // 26 characters each
	token = token[:64]
	return token, pki.WriteFile(path, []byte(token+"\n"))
}
