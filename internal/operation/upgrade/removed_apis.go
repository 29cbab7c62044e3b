package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// metric is the API servers' own: 1 for each deprecated API that was asked for since the API server started
	// (k8s.io/apiserver/pkg/endpoints/metrics).
	metric = "apiserver_requested_deprecated_apis"
	path   = "/metrics"
	// most is above the some 2 MiB that an API server with many kinds tells.
	most = 64 << 20
	// connections for each API server. A load balancer that goes round reaches each of them with far fewer; other clients
	// take their turns in between.
	connections = 4
)

// removedAPI is a deprecated API that was asked for.
type removedAPI struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Removed  string `json:"removed"` // the minor of Kubernetes that serves it no more: "1.33"
}

// String is "flowschemas of flowcontrol.apiserver.k8s.io/v1beta3 (removed in Kubernetes 1.32)".
func (a removedAPI) String() string {
	group := a.Version
	if a.Group != "" {
		group = a.Group + "/" + a.Version
	}
	return fmt.Sprintf("%s of %s (removed in Kubernetes 1.%d)", a.Resource, group, a.minor())
}

// minor of Kubernetes 1.x; 0: the metric names none.
func (a removedAPI) minor() uint64 {
	_, minor, _ := strings.Cut(a.Removed, ".")
	n, _ := strconv.ParseUint(minor, 10, 64)
	return n
}

// removedAPIs lists the APIs that clients have asked the API servers for and that Kubernetes 1.minor does not serve.
// servers is how many API servers there are: each is asked through the load balancer, by connections of its own.
func removedAPIs(ctx context.Context, c *kube.Cluster, servers int, minor uint64) ([]removedAPI, error) {
	var found []removedAPI
	for range max(1, servers) * connections {
		text, err := c.GetAnew(ctx, path, most)
		if err != nil {
			return nil, fmt.Errorf("ask an API server for its metrics: %w", err)
		}
		asked, err := requested(text)
		if err != nil {
			return nil, err
		}
		for _, a := range asked {
			if is := a.minor(); is != 0 && is <= minor && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}
	slices.SortFunc(found, func(a, b removedAPI) int { return cmp.Compare(a.String(), b.String()) })
	return found, nil
}

// requested reads the deprecated APIs out of an API server's metrics.
func requested(text []byte) ([]removedAPI, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read an API server's metrics: %w", err)
	}
	var all []removedAPI
	for _, m := range families[metric].GetMetric() {
		if m.GetGauge().GetValue() == 0 {
			continue
		}
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		all = append(all, removedAPI{Group: labels["group"], Version: labels["version"], Resource: labels["resource"],
			Removed: labels["removed_release"]})
	}
	return all, nil
}
