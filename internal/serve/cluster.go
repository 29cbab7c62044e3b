package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// clusterOptions are what a cluster is made from.
type clusterOptions struct {
	Name        string       // of the cluster
	Dir         string       // the folder that its command works in
	State       statedir.Dir // its state folder
	Environment string       // statedir.EnvironmentLab or statedir.EnvironmentHetzner

	Executable string   // the command
	Arguments  []string // that lead it to this cluster: --config, --state-dir, KEY=VALUE
	Env        []string // of the command
	Targets    []string // that can be run, with those that stand for several first

	Hide *redact.Redactor
	Log  *slog.Logger
}

// cluster is a cluster whose runs are watched and started. It can be used by many at once.
type cluster struct {
	clusterOptions
	store  *recordStore
	host   string
	unlock func() error

	mu      sync.Mutex
	records []record        // the oldest first
	own     map[string]bool // ids of runs whose process is a child of this one
	seen    map[string]seen // what was read of runs, by the id in the state folder
	working sync.WaitGroup  // those who follow a process
	ending  chan struct{}   // closed when serve ends
	asks    chan struct{}   // has room for as many commands as may look at once
}

// looksAtOnce is how many commands may look at one cluster at the same time.
const looksAtOnce = 3

// openCluster takes the cluster for this process, and reads what an earlier one knew. Runs that ended meanwhile have an
// end afterwards; those that still work are followed.
func openCluster(ctx context.Context, o clusterOptions) (*cluster, error) {
	folder := o.State.Path(statedir.ServeFolder)
	store, err := openRecords(filepath.Join(folder, "runs"), o.Hide)
	if err != nil {
		return nil, err
	}
	unlock, err := flow.LockFile(ctx, filepath.Join(folder, "lock"))
	if locked, is := errors.AsType[*flow.LockedError](err); is {
		return nil, usage.Errorf("process %d on %s serves cluster %s already, with the state folder %s: end it "+
			"first, or serve another folder", locked.PID, locked.Host, o.Name, o.State)
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	c := &cluster{clusterOptions: o, store: store, host: host, unlock: unlock, own: map[string]bool{},
		seen: map[string]seen{}, ending: make(chan struct{}), asks: make(chan struct{}, looksAtOnce)}
	var broken error
	if c.records, broken = store.Load(); broken != nil {
		o.Log.Warn("some records of runs cannot be read; those runs are shown as far as the state folder knows them",
			"cluster", o.Name, "error", c.Hide.Text(broken.Error()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.records {
		r := &c.records[i]
		id := r.ID
		switch {
		case r.Done():
		case c.works(*r):
			o.Log.Info("a run still works, and is followed", "cluster", o.Name, "run", r.ID, "pid", r.PID)
			c.working.Go(func() { c.followStranger(id) })
		default:
			c.noticeEnd(r)
			o.Log.Info("a run ended while serve did not run", "cluster", o.Name, "run", r.ID, "state", c.stateOf(*r))
			if err := store.Save(*r); err != nil {
				return nil, errors.Join(err, unlock())
			}
		}
	}
	return c, nil
}

// works reports whether the process of a record is alive.
func (c *cluster) works(r record) bool {
	return !r.Done() && r.Host == c.host && r.PID > 0 && (c.own[r.ID] || isProcess(r.PID, r.Process))
}

// noticeEnd gives a record whose process is gone the end that the state folder knows.
func (c *cluster) noticeEnd(r *record) {
	if r.Run == "" {
		r.Run = c.runOf(*r)
	}
	r.Ended = time.Now()
	if s, err := c.read(r.Run); r.Run != "" && err == nil && len(s.run.Events) > 0 {
		r.Ended = s.run.Ended()
	}
	r.Message = c.lastWords(r.ID)
}

// lastWords is the end of what a run said on standard error.
func (c *cluster) lastWords(id string) string {
	const most = 4 << 10
	text, err := c.store.HideErrors(id)
	if err != nil {
		c.Log.Warn("what a run said on standard error is not known", "cluster", c.Name, "run", id, "error", err)
	}
	return strings.ToValidUTF8(strings.TrimSpace(text[max(0, len(text)-most):]), "?")
}

// change changes the record of a run, and saves it.
func (c *cluster) change(id string, how func(*record)) error {
	i := slices.IndexFunc(c.records, func(r record) bool { return r.ID == id })
	if i < 0 {
		return fmt.Errorf("there is no record of run %s", id)
	}
	how(&c.records[i])
	return c.store.Save(c.records[i])
}

// Writable reports why the cluster's records cannot be written; nil: they can.
func (c *cluster) Writable() error {
	file, err := os.CreateTemp(c.State.Path(statedir.ServeFolder), ".ready-*")
	if err != nil {
		return fmt.Errorf("the records of cluster %s cannot be written: %w", c.Name, err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// Close ends following the runs, which go on, and gives the cluster free for another process.
func (c *cluster) Close() error {
	close(c.ending)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unlock()
}
