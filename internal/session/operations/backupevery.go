package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

const (
	// shortestEvery is far above what a backup takes.
	shortestEvery = time.Minute
	// afterFailure is when a failed backup is tried again, unless the next is due before.
	afterFailure = 5 * time.Minute
)

// Repeat makes backups until the context ends. The next is due one period after the last one in the store, also after a
// restart.
func (b Backups) Repeat(ctx context.Context, every time.Duration) error {
	if every < shortestEvery {
		return usage.Errorf("--every %s is too often: %s is the least", every, shortestEvery)
	}
	last := func(ctx context.Context) (time.Time, error) {
		return lastBackup(ctx, b.Store, b.Cluster.Cfg.ClusterName)
	}
	once := func(ctx context.Context) error { _, err := b.Create(ctx); return err }
	return repeat(ctx, every, last, once, b.Hub.Note)
}

func lastBackup(ctx context.Context, store backup.Store, cluster string) (last time.Time, err error) {
	all, err := store.List(ctx)
	for _, s := range all {
		if s.Cluster == cluster && s.Taken.After(last) {
			last = s.Taken
		}
	}
	return last, err
}

// repeat does something now if nothing was done in the last period, and then
// once a period. What fails is said and tried again; only a mistake in the
// configuration ends it. Each time has one period. When ctx ends while it waits
// that is a good end, too.
func repeat(ctx context.Context, every time.Duration, last func(context.Context) (time.Time, error),
	do func(context.Context) error, note func(string, ...any)) error {
	var failed time.Time
	for {
		due, err := last(ctx)
		if due = due.Add(every); err == nil && !due.After(time.Now()) {
			limited, cancel := context.WithTimeoutCause(ctx, every, fmt.Errorf("it was not done after %s, when the next is due",
				every))
			err = do(limited)
			cancel()
			if err == nil {
				failed = time.Time{}
				continue
			}
		}
		if err != nil {
			if _, mistake := errors.AsType[*usage.Error](err); mistake || ctx.Err() != nil {
				return err
			}
			failed = time.Now()
			note("%v", err)
		}
		if !sleepUntil(ctx, next(due, failed, every), note) {
			return nil
		}
	}
}

// next is when to look again.
func next(due, failed time.Time, every time.Duration) time.Time {
	if failed.IsZero() {
		return due
	}
	return failed.Add(min(afterFailure, every))
}

func sleepUntil(ctx context.Context, at time.Time, note func(string, ...any)) bool {
	note("the next backup is due at %s", at.Local().Format(time.DateTime))
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
