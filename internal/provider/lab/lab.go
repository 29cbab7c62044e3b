// Package lab drives the lab, which is a program of its own: it builds, starts and ends it, speaks to it, and saves
// and loads its state.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// NewestAPI is the date of the Hetzner API that the lab simulates unless told otherwise.
const NewestAPI = "2026-11"

// APIDates are the dates of the Hetzner API that the lab can simulate, the oldest first: those of package lab/cloud.
func APIDates() []string { return []string{"2026-02", NewestAPI} }

// daemonFile is the daemon, in the lab's folder. A later build is another file, so that one that runs stays as it is.
const daemonFile = "bin/lab"

// Lab is the lab of one folder, up or not.
type Lab struct {
	Dir     string
	Latency string // "fast" or "real"
	API     string // date of the simulated Hetzner API; empty: NewestAPI
	Images  string // file with images and programs; empty: none
	Until   int    // process with whose end it ends; 0: none
	Client  *Client

	Programs Programs

	WorkDir     string
	Environment map[string]string
	CommandLine func(target ...string) string // a command that the operator types for this lab
}

// Up makes sure that the lab is up. One that is up already is used as it is.
func (l *Lab) Up(ctx context.Context, say flow.Say) (Info, error) {
	if info, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return info, err
	}
	builder, err := l.builder()
	if err != nil {
		return Info{}, err
	}
	program := filepath.Join(l.Dir, daemonFile)
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		return Info{}, fmt.Errorf("create the lab's folder: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(l.Dir, "start.lock"), "starting this lab", say)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if info, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return info, err // started by whom we waited for
	}
	if err := builder.beforeStart(ctx); err != nil {
		return Info{}, err
	}
	upstream, err := builder.programs(ctx, say)
	if err != nil {
		return Info{}, err
	}
	if err := builder.remember(upstream); err != nil {
		return Info{}, err
	}
	sets, err := builder.allSetsToRun(ctx, upstream, say)
	if err != nil {
		return Info{}, err
	}
	originals, err := builder.originals(ctx, upstream, say)
	if err != nil {
		return Info{}, err
	}
	flux, err := builder.flux().toRun(ctx, builder, say)
	if err != nil {
		return Info{}, err
	}
	gitea, err := builder.gitea().toRun(ctx, builder, say)
	if err != nil {
		return Info{}, err
	}
	if err := builder.daemon(ctx, program, say); err != nil {
		return Info{}, err
	}
	mapping, err := builder.resolveMapping(ctx, "--lab-images", l.Images, say)
	if err != nil {
		return Info{}, err
	}
	info, err := l.daemon().Start(ctx, program, l.arguments(upstream, originals, sets, flux, gitea, mapping), say)
	if err != nil {
		return info, err
	}
	return l.Client.OfferCharts(ctx, l.Programs.Config)
}

// Possible is nil if the lab is up or its programs can be built. It creates nothing in the lab's folder.
func (l *Lab) Possible(ctx context.Context) error {
	if _, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return err
	}
	b, err := l.builder()
	if err != nil {
		return err
	}
	return b.beforeStart(ctx)
}

func (l *Lab) builder() (*builder, error) {
	b, err := newBuilder(l)
	if err != nil {
		return nil, fmt.Errorf("no lab is up in %s, and none can be built: %w; one that is up can be used from any folder: "+
			"in the clone, run %s", l.Dir, err, platform.ShellCommand("lab", "up", "--state-dir", filepath.Dir(l.Dir)))
	}
	return b, nil
}

// Answering asks the lab for its info, within a moment.
func (l *Lab) Answering(ctx context.Context) (Info, error) { return l.daemon().Answering(ctx) }

// daemon is the lab's process.
func (l *Lab) daemon() Daemon {
	return Daemon{Name: "the lab", Dir: l.Dir, LogFile: filepath.Join(l.Dir, "lab.log"), Client: l.Client,
		Environment: daemonEnvironment(l.Environment)}
}

// arguments are those of the lab's process.
func (l *Lab) arguments(upstream, originals string, sets []programSet, flux, gitea, mapping string) []string {
	args := []string{"serve", "--dir", l.Dir, "--latency", l.Latency, "--bin", upstream}
	args = append(args, setArguments(sets)...)
	if flux != "" {
		args = append(args, "--flux", flux)
	}
	if gitea != "" {
		args = append(args, "--gitea", gitea)
	}
	if l.API != "" {
		args = append(args, "--api", l.API)
	}
	if originals != "" {
		args = append(args, "--originals", originals)
	}
	if mapping != "" {
		args = append(args, "--images", mapping)
	}
	if l.Until != 0 {
		args = append(args, "--until-gone", strconv.Itoa(l.Until))
	}
	return args
}

// daemonEnvironment is what the daemon gets to see: where things are, and nothing
// that a password might be in.
func daemonEnvironment(environment map[string]string) []string {
	names := []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "LANG", "LC_ALL",
		"TZ"}
	var list []string
	for _, name := range names {
		if value, ok := environment[name]; ok {
			list = append(list, name+"="+value)
		}
	}
	slices.Sort(list)
	return list
}

// Down ends the lab and everything that it started, and returns when it is
// gone. It reports whether there was one.
func (l *Lab) Down(ctx context.Context) (bool, error) { return l.daemon().Down(ctx) }
