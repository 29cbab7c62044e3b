package environment

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/lab/repository"
)

// offerRepository writes the repository of providers and charts and serves its charts until ctx is done. It is written
// at each start, because the programs may have changed.
func (lab *Lab) offerRepository(ctx context.Context) (err error) {
	dir := lab.path("repository")
	if lab.offer, err = repository.Write(ctx, dir,
		repository.Options{Bin: lab.cfg.Bin, Originals: lab.cfg.Originals}); err != nil {
		return err
	}
	l, err := lab.cfg.Network.Listen(ctx, lab.state.Slot().Charts())
	if err != nil {
		return fmt.Errorf("serve charts: %w", err)
	}
	lab.serve(ctx, l, repository.Handler(dir))
	return nil
}

// chartRepositories are the URLs of the charts' repositories, by chart.
func (lab *Lab) chartRepositories() map[string]string {
	urls := map[string]string{}
	for _, c := range lab.offer.Charts {
		urls[c.Name] = "http://" + lab.state.Slot().Charts()
	}
	return urls
}
