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
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// Cloud is what Hetzner says of a cluster's servers.
type Cloud struct {
	At       time.Time
	Servers  []hetzner.Server
	Failures []hetzner.Failure // of actions in the last hour; none where they could not be read
	Err      error             // why the servers are not known
}

// ReadCloud asks Hetzner for the servers of a cluster and for failed actions. heard gets the answer about the servers
// as soon as it is there, and returns the error that is kept. nil: it is kept as it is.
func ReadCloud(ctx context.Context, cfg config.Config, tools platform.Tools, heard func(error) error) (c Cloud) {
	if tools.Hetzner == nil {
		return Cloud{Err: errors.New("there is no token")}
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		c.Servers, c.Err = hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
		if heard != nil {
			c.Err = heard(c.Err)
		}
	})
	asking.Go(func() { c.Failures, _ = hetzner.Failures(ctx, tools.Hetzner, time.Now().Add(-failuresSince)) })
	asking.Wait()
	c.At = time.Now()
	return c
}

// Tell writes it into a situation.
func (c Cloud) Tell(s *why.Situation) {
	if c.Err != nil {
		s.Silent[why.Hetzner] = c.Err.Error()
		return
	}
	s.Cloud, s.CloudAt, s.Failures = []why.Server{}, c.At.UTC(), nil
	for _, one := range c.Servers {
		s.Cloud = append(s.Cloud, why.Server{ID: one.ID, Name: one.Name, Status: one.Status, Protected: one.Protected})
	}
	for _, f := range c.Failures {
		s.Failures = append(s.Failures, why.Failure(f))
	}
}

// cloudSight is what Hetzner answered last, for all waits of a run together.
type cloudSight struct {
	mu   sync.Mutex
	last Cloud

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
	show := func(o *unstructured.Unstructured) {
		fmt.Fprintln(&shown, o.GetName(), o.Object["status"]) // maps are printed in the order of their keys
	}
	if told.Infrastructure != nil {
		show(told.Infrastructure)
	}
	for i := range told.Servers {
		show(&told.Servers[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := shown.String(); now != s.shown {
		s.shown, s.moved = now, true
	}
}

// old says whether the last answer is to be asked for again. s.mu is held.
func (s *cloudSight) old() bool {
	if s.moved || s.last.Err != nil {
		return time.Since(s.last.At) >= cloudFresh
	}
	return time.Since(s.last.At) >= cloudStale
}

// read asks Hetzner again where its last answer is old.
func (s *cloudSight) read(ctx context.Context, cfg config.Config, tools platform.Tools) Cloud {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old() {
		s.moved, s.last = false, ReadCloud(ctx, cfg, tools, nil)
	}
	return s.last
}
