package capacity_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
)

// server is a worker that has a type and a location.
func server(id int64, name, kind, location, role string) schema.Server {
	return schema.Server{ID: id, Name: name, ServerType: schema.ServerType{Name: kind},
		Location: schema.Location{Name: location},
		Labels:   map[string]string{"caph-cluster-k8s": "owned", "machine_type": role}}
}

func TestAPoolIsChosenByStock(t *testing.T) {
	for what, tt := range map[string]struct {
		pool             config.WorkerPool
		out              []string
		has              []schema.Server
		kind, in, passed string
	}{
		"of its own": {config.WorkerPool{ServerType: "cax21", Location: "fsn1"}, nil, nil, "cax21", "fsn1", ""},
		"as the rest of the configuration says": {config.WorkerPool{}, []string{"cx33 nbg1"}, nil, "cpx32", "nbg1",
			"cx33 is out of stock in nbg1"},
		"another location": {config.WorkerPool{ServerType: "cx33", Location: "nbg1,fsn1"}, []string{"cx33 nbg1"}, nil, "cx33",
			"fsn1", "cx33 is out of stock in nbg1"},
		"the only one, out of stock": {config.WorkerPool{ServerType: "cx33"}, []string{"cx33 nbg1"}, nil, "cx33", "nbg1", ""},
		"as its servers": {config.WorkerPool{Replicas: 2}, nil, []schema.Server{
			server(1, "k8s-general-abcde-12345", "cpx32", "nbg1", "worker")}, "cpx32", "nbg1",
			"cluster has servers of type cpx32 in nbg1"},
		"as the servers of its second placement group": {config.WorkerPool{Replicas: 10}, nil, []schema.Server{
			server(1, "k8s-general-2-abcde-12345", "cpx32", "nbg1", "worker")}, "cpx32", "nbg1",
			"cluster has servers of type cpx32 in nbg1"},
		"not as those of another pool": {config.WorkerPool{Replicas: 2}, nil, []schema.Server{
			server(1, "k8s-general-x-abcde-12345", "cpx32", "nbg1", "worker")}, "cx33", "nbg1", ""},
		"not as the control plane": {config.WorkerPool{Replicas: 2}, nil, []schema.Server{
			server(1, "k8s-general-abcde-12345", "cpx32", "nbg1", "control_plane")}, "cx33", "nbg1", ""},
		"its newest server decides": {config.WorkerPool{Location: "nbg1,fsn1"}, nil, []schema.Server{
			server(1, "k8s-general-abcde-12345", "cx33", "nbg1", "worker"),
			server(2, "k8s-general-abcde-12346", "cpx32", "fsn1", "worker")}, "cpx32", "fsn1",
			"cluster has servers of type cpx32 in fsn1"},
	} {
		s, c := sells(t, tt.out...)
		for _, one := range tt.has {
			s.Put("servers", one.ID, one)
		}
		cfg := config.Defaults()
		cfg.ServerType = "cx33,cpx32"
		tt.pool.Name = "general"
		got, err := capacity.ChoosePool(t.Context(), c, cfg, tt.pool, "eu-central")
		if err != nil || got.ServerType != tt.kind || strings.Join(got.Locations, " ") != tt.in ||
			strings.Join(got.Passed, "; ") != tt.passed ||
			got.Architecture != map[bool]string{true: "arm64", false: "amd64"}[tt.kind == "cax21"] {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestAPoolThatCannotBe(t *testing.T) {
	_, c := sells(t, "cx33 nbg1", "cpx32 nbg1")
	cfg := config.Defaults()
	for says, pool := range map[string]config.WorkerPool{
		"worker pool db: location \"ash\" is in network zone us-east, and the cluster in eu-central": {Location: "ash"},
		"worker pool db: server type \"cx99\"":                                                       {ServerType: "cx99"},
		"to the pool's serverType or location, or":                                                   {ServerType: "cx33,cpx32"},
	} {
		pool.Name = "db"
		_, err := capacity.ChoosePool(t.Context(), c, cfg, pool, "eu-central")
		var wrong *hetzner.Unknown
		var none *capacity.OutOfStockError
		if err == nil || !strings.Contains(err.Error(), says) || !errors.As(err, &wrong) && !errors.As(err, &none) {
			t.Errorf("%+v: %v, want %q", pool, err, says)
		}
	}
}
