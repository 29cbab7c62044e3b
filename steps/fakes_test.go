package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
)

// fakeProvider gives out one management cluster.
type fakeProvider struct {
	kubeconfig []byte
	exists     bool
	err        error // of Exists
	ensured    int
}

func (p *fakeProvider) Name() string { return "fake" }

func (p *fakeProvider) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	p.ensured++
	return p.kubeconfig, nil
}

func (p *fakeProvider) Exists(context.Context, string) (bool, error) { return p.exists, p.err }

func (p *fakeProvider) Delete(context.Context, string) error { return nil }
