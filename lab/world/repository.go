package world

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/lab/repository"
)

// offerRepository writes the repository of providers and charts and serves its charts until ctx is done. It is written
// at each start, because the programs may have changed.
func (w *World) offerRepository(ctx context.Context) (err error) {
	dir := w.path("repository")
	if w.offer, err = repository.Write(ctx, dir, repository.Options{Bin: w.cfg.Bin}); err != nil {
		return err
	}
	l, err := w.cfg.Network.Listen(ctx, w.state.slot().charts())
	if err != nil {
		return fmt.Errorf("serve charts: %w", err)
	}
	w.serve(ctx, l, repository.Handler(dir))
	return nil
}

// chartRepositories are the URLs of the charts' repositories, by chart.
func (w *World) chartRepositories() map[string]string {
	urls := map[string]string{}
	for _, c := range w.offer.Charts {
		urls[c.Name] = "http://" + w.state.slot().charts()
	}
	return urls
}
