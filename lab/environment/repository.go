package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/repository"
)

// repositoryOffer is what the repository of providers and charts has. A core that the lab is given is added.
type repositoryOffer struct {
	mu sync.Mutex
	is repository.Contents
}

func (o *repositoryOffer) get() repository.Contents {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.is
}

// offerRepository writes the repository of providers and charts and serves its charts until ctx is done. It is written
// at each start, because the programs may have changed.
func (lab *Lab) offerRepository(ctx context.Context) error {
	dir := lab.path("repository")
	contents, err := repository.Write(ctx, dir,
		repository.Options{Bin: lab.cfg.Bin, Core: lab.coreFolders(), Originals: lab.cfg.Originals})
	if err != nil {
		return err
	}
	lab.offer.is = contents
	l, err := lab.cfg.Network.Listen(ctx, lab.state.Slot().Charts())
	if err != nil {
		return fmt.Errorf("serve charts: %w", err)
	}
	lab.serve(ctx, l, repository.Handler(dir))
	return nil
}

// offerCore adds the manifests of each core that the lab has to its repository.
func (lab *Lab) offerCore(ctx context.Context) error {
	lab.offer.mu.Lock()
	defer lab.offer.mu.Unlock()
	contents, err := lab.offer.is.WithCore(ctx, lab.coreFolders())
	if err != nil {
		return err
	}
	lab.offer.is = contents
	return nil
}

// serveCharts offers the charts of stand-ins as further versions, until the lab ends.
func (lab *Lab) serveCharts(r *http.Request) (any, error) {
	var wanted map[string]string
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, control.BadRequest(fmt.Errorf("read the request: %w", err))
	}
	if err := lab.offerCharts(wanted); err != nil {
		return nil, control.BadRequest(err)
	}
	return lab.info(), nil
}

func (lab *Lab) offerCharts(wanted map[string]string) error {
	lab.offer.mu.Lock()
	defer lab.offer.mu.Unlock()
	contents, err := lab.offer.is.WithCharts(lab.path("repository"), wanted, lab.cfg.Originals)
	if err == nil {
		lab.offer.is = contents
	}
	return err
}

// coreFolders are the folders of the programs of Cluster API's core.
func (lab *Lab) coreFolders() (folders []string) {
	for _, s := range lab.core.List() {
		folders = append(folders, s.Bin)
	}
	return folders
}

// chartRepositories are the URLs of the charts' repositories, by chart.
func (lab *Lab) chartRepositories() map[string]string {
	urls := map[string]string{}
	for _, c := range lab.offer.get().Charts {
		urls[c.Name] = "http://" + lab.state.Slot().Charts()
	}
	return urls
}
