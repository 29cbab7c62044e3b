package doctor

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
)

// largestComponents bounds a provider's manifest; Cluster API's own, the largest, has 1 MiB.
const largestComponents = 16 << 20

// schemas reports what checkSchemas finds: what an API server would refuse once the management cluster exists is
// refused before anything is created. Unlike a run, it fetches the schemas where they are not on this machine.
func (d *Doctor) schemas(ctx context.Context) Finding {
	objects, err := checks.Rendered(d.cfg, d.sources)
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	wrong, held, err := checks.Schemas(d.cfg, d.sources, objects,
		func(p capi.Provider, name string) ([]byte, string, error) {
			return d.file(ctx, p, name, largestComponents)
		})
	var missing *checks.MissingError
	switch {
	case errors.As(err, &missing):
		return unknown("see the check providers", "%v", err)
	case err != nil:
		return unknown("the API server judges the objects when they are applied", "%v", err)
	case len(wrong) > 0:
		return mistake(wrong[0])
	}
	if others := len(objects) - held; others > 0 {
		return unknown("the API server judges them when they are applied", "%d objects fit the providers' schemas; %d are "+
			"of kinds that no provider brings", held, others)
	}
	return ok("%d objects fit the schemas of the providers' versions", held)
}
