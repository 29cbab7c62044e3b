// Package local provides a management cluster made of processes of this machine: no container engine is needed.
package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// Name is what the provider is called in journals.
const Name = "local"

// Provider is a platform.ManagementProvider. Its clusters run in one daemon for each state folder, which stays up
// between runs. After a restart of the machine Ensure starts it again.
type Provider struct {
	management lab.LocalManagement
	client     *lab.Client
}

// New starts nothing. effects records what it changes; nil: nothing is recorded.
func New(m lab.LocalManagement, effects *effect.Recorder) *Provider {
	p := &Provider{management: m, client: lab.NewLocalClient(m.Dir)}
	if effects != nil {
		p.client.RecordAs(effects, effect.Local)
	}
	return p
}

func (p *Provider) daemon() lab.Daemon { return p.management.Daemon(p.client) }

func (p *Provider) clusters() lab.Management { return p.management.Clusters(p.client) }

// Name implements platform.ManagementProvider.
func (p *Provider) Name() string { return Name }

// Possible is nil if this machine allows a local management cluster.
func (p *Provider) Possible(ctx context.Context) error { return Possible(ctx) }

// Ensure starts the daemon where it is not up, and returns the kubeconfig of a cluster that is ready.
func (p *Provider) Ensure(ctx context.Context, name string, say flow.Say) ([]byte, error) {
	if err := Possible(ctx); err != nil {
		return nil, err
	}
	if deleting, err := p.deleting(); err != nil {
		return nil, err
	} else if deleting {
		if err := p.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := p.management.Up(ctx, p.daemon(), say); err != nil {
		return nil, err
	}
	return p.clusters().Ensure(ctx, name, say)
}

// Stopped reports whether there is a cluster that does not run, as after a restart of the machine: Ensure starts it.
// One whose deletion was cut off is none.
func (p *Provider) Stopped(ctx context.Context, name string) (bool, error) {
	if p.Running(ctx) {
		return false, nil
	}
	if deleting, err := p.deleting(); err != nil || deleting {
		return false, err
	}
	return p.Exists(ctx, name)
}

// ProvideCore makes sure that the cluster, where it runs, has the program of the configured core.
func (p *Provider) ProvideCore(ctx context.Context, say flow.Say) error {
	if !p.Running(ctx) {
		return nil
	}
	return p.management.ProvideCore(ctx, p.client, say)
}

// Running says whether the daemon answers.
func (p *Provider) Running(ctx context.Context) bool {
	_, err := p.daemon().Answering(ctx)
	return err == nil
}

// Look implements platform.Looker: it starts nothing.
func (p *Provider) Look(ctx context.Context, name string) ([]byte, error) {
	if !p.Running(ctx) {
		return nil, fmt.Errorf("management cluster %s does not run, as after a restart of this machine: every run of a "+
			"target that changes something starts it again", name)
	}
	return p.clusters().Ensure(ctx, name, func(string, ...any) {})
}

// Exists reports whether the cluster's data are in the state folder, or what a deletion that was cut off has left.
func (p *Provider) Exists(_ context.Context, name string) (bool, error) {
	there, err := exists(filepath.Join(p.management.Dir, "management", name))
	if err != nil || there {
		return there, err
	}
	return p.deleting()
}

// deletingFile is there from the beginning of a deletion to its end: what a deletion left is deleted, and never
// started.
const deletingFile = "deleting"

func (p *Provider) deleting() (bool, error) {
	return exists(filepath.Join(p.management.Dir, deletingFile))
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Delete ends the cluster and the daemon, and removes the data of both.
func (p *Provider) Delete(ctx context.Context, name string) error {
	if there, err := exists(p.management.Dir); err != nil || !there {
		return err
	}
	if err := p.delete(ctx, name); err != nil {
		return fmt.Errorf("delete management cluster %s: %w", name, err)
	}
	return nil
}

func (p *Provider) delete(ctx context.Context, name string) error {
	if err := os.WriteFile(filepath.Join(p.management.Dir, deletingFile), nil, 0o600); err != nil {
		return err
	}
	_, err := p.daemon().Answering(ctx)
	switch {
	case err == nil:
		if err := p.clusters().Delete(ctx, name); err != nil {
			return err
		}
		if _, err := p.daemon().Down(ctx); err != nil {
			return err
		}
	case !errors.Is(err, lab.ErrDown):
		return err
	default:
		if err := p.ended(); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(p.management.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == deletingFile {
			continue // the last
		}
		if err := os.RemoveAll(filepath.Join(p.management.Dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(p.management.Dir)
}

// ended makes sure that a daemon that does not answer has ended.
func (p *Provider) ended() error {
	path := filepath.Join(p.management.Dir, "daemon.lock")
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		return fmt.Errorf("the daemon of the management cluster (process %s) runs and does not answer: look at %s, end it, "+
			"and run again", strings.TrimSpace(string(holder)), filepath.Join(p.management.Dir, "daemon.log"))
	}
	return nil
}
