package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// meta are the common fields of all records.
type meta struct {
	ID        int64             `json:"id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   time.Time         `json:"created"`
	Protected bool              `json:"protected,omitempty"` // against deletion
}

func (m *meta) base() *meta { return m }

// labels never returns nil, because the API's labels are an object, never null.
func (m *meta) labels() map[string]string {
	if m.Labels == nil {
		return map[string]string{}
	}
	return m.Labels
}

// record is anything that the API has an id for.
type record interface{ base() *meta }

// state is everything that survives a restart.
type state struct {
	NextID          int64                     `json:"nextID"`
	Actions         map[int64]*action         `json:"actions"`
	Servers         map[int64]*server         `json:"servers"`
	Networks        map[int64]*network        `json:"networks"`
	LoadBalancers   map[int64]*loadBalancer   `json:"loadBalancers"`
	Images          map[int64]*image          `json:"images"`
	PlacementGroups map[int64]*placementGroup `json:"placementGroups"`
	SSHKeys         map[int64]*sshKey         `json:"sshKeys"`
	Firewalls       map[int64]*firewall       `json:"firewalls"`
	PrimaryIPs      map[int64]*primaryIP      `json:"primaryIPs"`
	Volumes         map[int64]*volume         `json:"volumes"`
}

// firstID is where ids begin: high enough that no one takes them for list positions.
const firstID = 1_000_001

// loadState reads the state, or begins an empty one.
func loadState(path string) (*state, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the simulated cloud's state: %w", err)
	}
	loaded, err := decodeState(data)
	if err != nil {
		return nil, fmt.Errorf("reading the simulated cloud's state in %s: %w (delete the file to begin an empty project)",
			path, err)
	}
	return loaded, nil
}

func decodeState(data []byte) (*state, error) {
	loaded := &state{
		NextID:          firstID,
		Actions:         map[int64]*action{},
		Servers:         map[int64]*server{},
		Networks:        map[int64]*network{},
		LoadBalancers:   map[int64]*loadBalancer{},
		Images:          map[int64]*image{},
		PlacementGroups: map[int64]*placementGroup{},
		SSHKeys:         map[int64]*sshKey{},
		Firewalls:       map[int64]*firewall{},
		PrimaryIPs:      map[int64]*primaryIP{},
		Volumes:         map[int64]*volume{},
	}
	return loaded, json.Unmarshal(data, loaded)
}

func (s *state) encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("writing the simulated cloud's state: %w", err)
	}
	return data, nil
}

// saveState writes an encoded state in one piece. It survives the death of the process at any point; there
// is no fsync, because a simulated project need not survive the machine's power failing.
func saveState(path string, data []byte) error {
	// The state holds user data, and with it cluster keys: for the owner's eyes only.
	fresh, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("writing the simulated cloud's state: %w", err)
	}
	_, err = fresh.Write(data)
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
		return fmt.Errorf("writing the simulated cloud's state: %w", err)
	}
	return nil
}

// newMeta begins a record. The API counts in whole seconds of UTC.
func (c *Cloud) newMeta(name string, labels map[string]string) meta {
	id := c.state.NextID
	c.state.NextID++
	return meta{ID: id, Name: name, Labels: labels, Created: time.Now().UTC().Truncate(time.Second)}
}
