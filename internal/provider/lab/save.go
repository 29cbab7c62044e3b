package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// SavedFile says in a folder that lab save made what it is.
const SavedFile = "saved.json"

// SavedVersion is that of the folder's form.
const SavedVersion = 1

// Saved is what a folder that lab save made tells of itself.
type Saved struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`  // CLUSTER_NAME
	Endpoint string    `json:"endpoint"` // of the simulated Hetzner API: the address that one lab at a time can have
	Time     time.Time `json:"time"`
}

// savedPart leaves out of a copy what belongs to who is at work in a state
// folder.
func savedPart(path string) treatment {
	inLab := func(name string) string { return filepath.Join(statedir.LabFolder, name) }
	switch {
	case slices.Contains([]string{statedir.JournalLock, inLab("lab.lock"), inLab("start.lock"), inLab("lab.sock.path"),
		SavedFile}, path):
		return leaveIt
	case path == inLab(daemonFile):
		return linkIt
	default:
		return copyIt
	}
}

// CheckSaveFolder refuses a folder that has something in it, or lies in what is
// to be saved.
func CheckSaveFolder(to string, state statedir.Dir) error {
	if below, err := filepath.Rel(string(state), to); err == nil && below != ".." &&
		!strings.HasPrefix(below, ".."+string(filepath.Separator)) {
		return usage.Errorf("%s lies in the state folder %s, which is to be saved: name another folder", to, state)
	}
	entries, err := os.ReadDir(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usage.Errorf("save the lab: %w", err)
	case len(entries) > 0:
		return usage.Errorf("%s is not empty: name a folder that is, or one that does not exist", to)
	}
	return nil
}

// Save freezes the lab and copies it, with its state folder, into a file.
func (l *Lab) Save(ctx context.Context, state statedir.Dir, cluster, to string, say flow.Say) (err error) {
	info, err := l.Answering(ctx)
	if err != nil {
		return fmt.Errorf("save the lab: %w: start it: %s", err, l.CommandLine("lab", "up"))
	}
	unlock, err := state.Journal().Lock(ctx) // no run changes anything meanwhile
	if err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()

	// Made beside and renamed: a folder of this name is whole.
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	unfinished, err := beside(to)
	if err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	defer os.RemoveAll(unfinished) // renamed by then, if all went well

	say("saving: all processes of the lab are stopped")
	still := time.Now()
	sum, err := l.copyStill(ctx, unfinished, string(state))
	if err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	stood := time.Since(still)
	about, err := json.MarshalIndent(Saved{Version: SavedVersion, Cluster: cluster, Endpoint: info.HetznerEndpoint,
		Time: time.Now().UTC()}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(unfinished, SavedFile), append(about, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	if err := os.Rename(unfinished, to); err != nil {
		return fmt.Errorf("save the lab: %w", err)
	}
	say("saved in %s: %d files, %d MB; the lab was frozen for %s and runs again", to, sum.Files, sum.Bytes>>20,
		stood.Round(time.Millisecond))
	return nil
}

// copyStill copies the state folder while nothing in the lab runs.
func (l *Lab) copyStill(ctx context.Context, to, from string) (sum copied, err error) {
	thaw, err := l.Client.freeze(ctx)
	if err != nil {
		return copied{}, err
	}
	sum, err = copyTree(ctx, to, from, savedPart)
	return sum, errors.Join(err, thaw())
}

// freeze stops every process of the lab until thaw is called, or this process ends. Thaw returns when they run again,
// with an error if they did so earlier.
func (c *Client) freeze(ctx context.Context) (thaw func() error, err error) {
	const path = "/v1/freeze"
	body, hold := io.Pipe() // its end is the thaw
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab"+path, body)
	if err != nil {
		return nil, err
	}
	reply, err := c.http.Do(request) // it begins when all processes are stopped
	if err != nil {
		return nil, fmt.Errorf("ask the lab in %s: %w", c.dir, err)
	}
	if reply.StatusCode != http.StatusOK {
		defer reply.Body.Close()
		said, _ := io.ReadAll(reply.Body) // what there is of it
		return nil, c.refused(http.MethodPost, path, reply, said)
	}
	return func() error {
		defer reply.Body.Close()
		hold.Close()
		var said struct{ Stood bool }
		if err := json.NewDecoder(reply.Body).Decode(&said); err != nil || !said.Stood {
			return fmt.Errorf("the lab in %s was not stopped all the time: it has ended, or waited too long", c.dir)
		}
		return nil
	}, nil
}
