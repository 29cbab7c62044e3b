package logs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/platform"
)

// Follow hands on what the controllers write, in both clusters: before the pivot Cluster API's run in the management
// cluster, after it in the cluster itself, and in between in both. It waits for a cluster that is not there yet, and
// ends when ctx does.
func Follow(ctx context.Context, cfg config.Config, tools platform.Tools, w Options) {
	tools = tools.WithDefaults()
	var both sync.WaitGroup
	for _, side := range logSides(cfg) {
		both.Go(func() { followSide(ctx, cfg, tools, side, w) })
	}
	both.Wait()
}

// followSide follows a cluster as long as it is there, and looks for it while it is not.
func followSide(ctx context.Context, cfg config.Config, tools platform.Tools, side logSide, w Options) {
	options := w.of(side)
	var latest latestTime
	hand := options.Line
	options.Line = func(line kube.LogLine) {
		latest.see(line.Time)
		hand(line)
	}
	for ctx.Err() == nil {
		cluster, err := openLogSide(ctx, cfg, tools, side, w)
		if err == nil {
			followCluster(ctx, cfg, tools, side, cluster, w, options)
		} else if ctx.Err() == nil {
			w.Note(w.line(side, kube.LogLine{}), whyNoLog(err))
			pause(ctx, logsLookEvery)
		}
		options.Lines = -1 // what a cluster that comes later writes from its beginning on is news
		if seen := latest.get(); seen.After(options.After) {
			options.After = seen
		}
	}
}

// followCluster returns when the cluster is another one, or gone.
func followCluster(ctx context.Context, cfg config.Config, tools platform.Tools, side logSide, cluster *kube.Cluster,
	w Options, options kube.LogOptions) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	uid, _ := cluster.UID(ctx) // it has just answered
	asking := make(chan struct{}, 1)
	tell := options.Trouble
	options.Trouble = func(where kube.LogLine, err error) {
		tell(where, err)
		if where.Pod == "" {
			select {
			case asking <- struct{}{}:
			default: // one is pending
			}
		}
	}
	go func() { // the cluster does not answer: whether it is there, its maker knows
		for {
			select {
			case <-ctx.Done():
				return
			case <-asking:
			}
			now, err := openLogSide(ctx, cfg, tools, side, w)
			if err == nil {
				if other, uidErr := now.UID(ctx); uidErr == nil && other != uid {
					cancel()
				}
			}
			if errors.Is(err, errNoSuchCluster) {
				cancel()
			}
		}
	}()
	cluster.FollowLogs(ctx, options)
}

// latestTime is the latest of many times.
type latestTime struct {
	mu sync.Mutex
	at time.Time
}

func (l *latestTime) see(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.at) {
		l.at = at
	}
}

func (l *latestTime) get() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
