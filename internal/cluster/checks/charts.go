package checks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// ChartsWithin bounds the downloads of charts that are only rendered: a person waits for it.
const ChartsWithin = 15 * time.Second

// Download gets the archive of a chart.
type Download func(context.Context, kube.ChartSource) ([]byte, error)

// Charts renders charts with the values that a run installs them with. wrong are those that do not render, unchecked
// says why others were not rendered.
func Charts(ctx context.Context, cfg config.Config, sources render.Sources, all []render.Chart,
	download Download) (wrong []ValueProblem, unchecked []string) {
	ctx, cancel := context.WithTimeoutCause(ctx, ChartsWithin, fmt.Errorf("no answer within %s", ChartsWithin))
	defer cancel()
	errs := make([]error, len(all))
	var asking sync.WaitGroup
	for i, in := range all {
		asking.Go(func() {
			archive, err := download(ctx, kube.ChartSource{Repository: in.Repository, Name: in.Name, Version: in.Version})
			if err == nil {
				err = kube.Template(ctx, archive, in.Release, in.Namespace, cfg.KubernetesVersion,
					func() (map[string]any, error) { return in.Values.Values(sources.Vars) })
			}
			errs[i] = err
		})
	}
	asking.Wait()
	for i, err := range errs {
		in := all[i]
		failed, is := errors.AsType[*kube.TemplateError](err)
		switch {
		case err == nil:
		case is && failed.Depends:
			unchecked = append(unchecked, fmt.Sprintf("chart %s %s with %s depends on what is in the cluster: %v", in.Name,
				in.Version, in.Values.Name, err))
		case is:
			wrong = append(wrong, *problemf("correct the values", "%s: chart %s %s does not render with these values: %v",
				in.Values.Name, in.Name, in.Version, err))
		default:
			unchecked = append(unchecked, fmt.Sprintf("chart %s %s: %v", in.Name, in.Version, err))
		}
	}
	return wrong, unchecked
}
