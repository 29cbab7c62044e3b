package situation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// cloudSight is what Hetzner answered last, for all waits of a run together.
type cloudSight struct {
	mu       sync.Mutex
	at       time.Time
	servers  []why.Server
	failures []why.Failure
	err      error

	shown string // what CAPH's objects said last
	moved bool   // they say something else than when Hetzner was asked

	endpoint endpointSight
}

// endpointSight is what Hetzner answered last about the cluster's address.
type endpointSight struct {
	mu      sync.Mutex
	at      time.Time
	address string
	lost    string
}

// noticed compares what CAPH's objects say with what they said last.
func (s *cloudSight) noticed(told why.Situation) {
	var shown strings.Builder
	for _, o := range append([]unstructured.Unstructured{*OrEmpty(told.Infrastructure)}, told.Servers...) {
		fmt.Fprintln(&shown, o.GetName(), o.Object["status"]) // maps are printed in the order of their keys
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := shown.String(); now != s.shown {
		s.shown, s.moved = now, true
	}
}

// old says whether the last answer is to be asked for again. s.mu is held.
func (s *cloudSight) old() bool {
	if s.moved || s.err != nil {
		return time.Since(s.at) >= cloudFresh
	}
	return time.Since(s.at) >= cloudStale
}

// read asks Hetzner again where its last answer is old.
func (s *cloudSight) read(ctx context.Context, cfg config.Config, tools platform.Tools) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tools.Hetzner == nil {
		s.err = errors.New("there is no token")
		return
	}
	if !s.old() {
		return
	}
	s.moved = false
	var servers []hetzner.Server
	var failures []hetzner.Failure
	s.err = together(
		func() (err error) {
			servers, err = hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
			return err
		},
		func() error { // beside what the servers say
			failures, _ = hetzner.Failures(ctx, tools.Hetzner, time.Now().Add(-FailuresSince))
			return nil
		},
	)
	s.at, s.servers, s.failures = time.Now(), []why.Server{}, nil
	for _, one := range servers {
		s.servers = append(s.servers, why.Server{ID: one.ID, Name: one.Name, Status: one.Status, Protected: one.Protected})
	}
	for _, f := range failures {
		s.failures = append(s.failures, why.Failure(f))
	}
}

// tell writes what is known into a situation.
func (s *cloudSight) tell(to *why.Situation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		to.Silent[why.Hetzner] = s.err.Error()
		return
	}
	to.Cloud, to.CloudAt, to.Failures = s.servers, s.at.UTC(), s.failures
}

// readTalos asks the Talos of every server that runs, all at once.
func (o *Observer) readTalos(ctx context.Context, mgmt *kube.Cluster, c Watched, machines []unstructured.Unstructured,
	runs func(server string) bool) map[string]why.Talos {
	answers := map[string]why.Talos{}
	config, err := connect.SecretValue(ctx, mgmt, c.Namespace, c.Name+"-talosconfig", "talosconfig")
	if kube.Absent(err) {
		err = errors.New("there is no talosconfig yet")
	}
	var t talos.Client
	if err == nil {
		t, err = o.Tools.Talos(config)
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, m := range capi.ControlPlaneMachines(machines) {
		name := capi.Text(&m, "spec", "infrastructureRef", "name")
		if !runs(name) {
			continue
		}
		address := append(capi.Addresses(&m, capi.AddressExternal), capi.Addresses(&m, capi.AddressInternal)...)
		asking.Go(func() {
			answer := askOneTalos(ctx, t, err, address)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = answer
		})
	}
	asking.Wait()
	return answers
}

func askOneTalos(ctx context.Context, t talos.Client, err error, address []string) why.Talos {
	switch {
	case err != nil:
		return why.Talos{Trouble: err.Error()}
	case len(address) == 0:
		return why.Talos{Trouble: "its address is not known yet"}
	}
	node, err := t.Ask(ctx, address[0])
	if err != nil {
		return why.Talos{Trouble: err.Error()}
	}
	return why.Talos{Etcd: node.Healthy, State: node.Etcd}
}
