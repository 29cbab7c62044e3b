package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// ReadSaved reads the description of a saved lab.
func ReadSaved(dir string) (Saved, error) {
	var about Saved
	data, err := os.ReadFile(filepath.Join(dir, SavedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return about, usage.Errorf("%s holds no lab that lab save has saved", dir)
	}
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil {
		return about, usage.Errorf("read %s: %w", filepath.Join(dir, SavedFile), err)
	}
	if about.Version != SavedVersion {
		return about, usage.Errorf("%s was saved by another version of this command (form %d, this one reads %d)",
			dir, about.Version, SavedVersion)
	}
	return about, nil
}

// MakeRoom refuses a state folder that is in use or not empty. With --yes it deletes what a rehearsal left, and nothing
// else.
func (l *Lab) MakeRoom(ctx context.Context, state statedir.Dir, yes bool) error {
	entries, err := os.ReadDir(string(state))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return usage.Errorf("load the lab: %w", err)
	}
	environment, err := state.Environment()
	if err != nil {
		return fmt.Errorf("read the state folder: %w", err)
	}
	switch {
	case environment == statedir.EnvironmentHetzner:
		return usage.Errorf("%s holds the state of a real cluster: load the lab into another folder (--state-dir)", state)
	case environment != statedir.EnvironmentLab && !Exists(filepath.Join(l.Dir, "state.json")):
		return usage.Errorf("%s is not empty, and no rehearsal's state folder: "+
			"load the lab into another folder (--state-dir)", state)
	}
	if _, err := l.Answering(ctx); !errors.Is(err, ErrDown) {
		return usage.Errorf("a lab is up in %s: end it (%s), or load into another folder (--state-dir)",
			state, l.CommandLine("lab", "down"))
	}
	if !yes {
		return usage.Errorf("%s is not empty: --yes has the loaded lab take the place of what is there", state)
	}
	return nil
}

// CheckAddress refuses where another lab has the addresses that the saved one
// needs: its certificates and kubeconfigs name them.
func CheckAddress(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return usage.Errorf("the saved lab's address %q: %w", endpoint, err)
	}
	u.Path = "/lab"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil // no lab listens; another process is found when the lab begins to listen
	}
	defer reply.Body.Close()
	var holder struct {
		Dir string
		PID int
	}
	if err := json.NewDecoder(reply.Body).Decode(&holder); err != nil || holder.Dir == "" {
		return fmt.Errorf("the saved lab needs the address %s, where another program listens", u.Host)
	}
	return fmt.Errorf("the saved lab needs the address %s, which the lab in %s has (process %d): one lab at a time can "+
		"be up there; end that one first: %s",
		u.Host, holder.Dir, holder.PID, platform.ShellCommand("lab", "down", "--state-dir", filepath.Dir(holder.Dir)))
}

// LoadState puts a copy of a saved folder in the place of the state folder.
func LoadState(ctx context.Context, state statedir.Dir, from string) (copied, error) {
	if err := os.MkdirAll(filepath.Dir(string(state)), 0o700); err != nil {
		return copied{}, err
	}
	unfinished, err := beside(string(state))
	if err != nil {
		return copied{}, err
	}
	defer os.RemoveAll(unfinished) // renamed by then, if all went well
	sum, err := copyTree(ctx, unfinished, from, savedPart)
	if err != nil {
		return sum, err
	}
	if err := os.RemoveAll(string(state)); err != nil {
		return sum, fmt.Errorf("delete the state that is replaced: %w", err)
	}
	return sum, os.Rename(unfinished, string(state))
}
