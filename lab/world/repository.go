package world

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/lab/repository"
)

// offer is the lab's repository of providers and charts: written in the background at each start, for the programs may be others
// than last time.
type offer struct {
	done     chan struct{}
	contents repository.Contents // valid when done is closed, as is err
	err      error
}

// offerRepository writes the repository and serves its charts until ctx is done.
func (w *World) offerRepository(ctx context.Context) error {
	dir := w.path("repository")
	l, err := w.cfg.Network.Listen(ctx, w.state.slot().charts())
	if err != nil {
		return fmt.Errorf("serve charts: %w", err)
	}
	w.serve(ctx, l, repository.Handler(dir))
	w.offer = &offer{done: make(chan struct{})}
	go func() {
		defer close(w.offer.done)
		w.offer.contents, w.offer.err = repository.Write(ctx, dir, repository.Options{Bin: w.cfg.Bin})
		if w.offer.err != nil {
			w.cfg.Log.Error("the repository is not written", "reason", w.offer.err)
		}
	}()
	return nil
}

// await returns what is on offer once it is written.
func (o *offer) await(ctx context.Context) (repository.Contents, error) {
	select {
	case <-o.done:
		return o.contents, o.err
	case <-ctx.Done():
		return repository.Contents{}, ctx.Err()
	}
}

// chartRepositories are the URLs of the charts' repositories, by chart.
func (w *World) chartRepositories(charts []repository.Chart) map[string]string {
	urls := map[string]string{}
	for _, c := range charts {
		urls[c.Name] = "http://" + w.state.slot().charts()
	}
	return urls
}
