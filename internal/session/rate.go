package session

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// rateEvery is how often a run writes down what it knows of the rate limit, where that has changed.
const rateEvery = 5 * time.Second

// keepRate writes down what a run knows of the rate limit of the Hetzner project, for who watches it, until end is
// called. The run does not need it: where it cannot be written, it is not.
func keepRate(limit *ratelimit.Governor, path string) (end func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		var last runs.Rate
		for over := false; !over; {
			select {
			case <-stop:
				over = true
			case <-time.After(rateEvery):
			}
			budget := limit.Budget()
			now := runs.Rate{Counts: limit.Counts(), Limit: budget.Limit, Remaining: budget.Remaining}
			if now == last {
				continue
			}
			last, now.Time = now, time.Now()
			if data, err := json.Marshal(now); err == nil && os.WriteFile(path+".tmp", data, 0o600) == nil {
				_ = os.Rename(path+".tmp", path)
			}
		}
	})
	return sync.OnceFunc(func() { close(stop); done.Wait() })
}
