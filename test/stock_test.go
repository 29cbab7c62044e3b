package test

import (
	"slices"
	"strings"
	"testing"
)

// TestStock bootstraps a cluster while Hetzner runs out of its preferred server type.
func TestStock(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	run := func(exit int, want string, args ...string) outcome {
		t.Helper()
		o := c.run(nil, append(args, "--lab")...)
		if o.exit != exit || !strings.Contains(o.output, want) {
			t.Fatalf("%v: exit %d, not %d, or %q is not said\n%s", args, o.exit, exit, want, o.output)
		}
		return o
	}
	c.lab("up")
	c.lab("fault", "add", "out-of-stock", "serverType=cx33", "location=nbg1")
	run(0, "the control plane gets server type cx33 in fsn1 (cx33 is out of stock in nbg1)", "preflight",
		"SERVER_TYPE=cx33,cpx32", "LOCATION=nbg1,fsn1")
	c.lab("fault", "add", "out-of-stock")
	p := c.project()
	run(1, "cpx32 is out of stock in nbg1. No server is created", "preflight", "SERVER_TYPE=cx33,cpx32",
		"LOCATION=fsn1,nbg1")
	if servers := p.clusterServers(t); len(servers) > 0 {
		t.Errorf("%d servers", len(servers))
	}
	c.lab("fault", "remove", "1")
	c.lab("fault", "remove", "2")

	// The first server of three gets the last cx33.
	c.lab("fault", "add", "out-of-stock", "serverType=cx33", "skip=1")
	run(0, "continuing with server type cpx32 in nbg1, as agreed; the servers that exist stay", "bootstrap",
		"--yes", "SERVER_TYPE=cx33,cpx32", "LOCATION=nbg1,fsn1")
	types := func() (kinds []string, first int64) {
		for _, s := range p.clusterServers(t) {
			kinds = append(kinds, s.ServerType.Name)
			if s.ServerType.Name == "cx33" {
				first = s.ID
			}
		}
		slices.Sort(kinds)
		return kinds, first
	}
	kinds, first := types()
	if !slices.Equal(kinds, []string{"cpx32", "cpx32", "cx33"}) {
		t.Fatalf("servers of types %v", kinds)
	}
	// What the servers that exist have is kept, also where the manifests are applied again.
	o := run(0, "the control plane gets server type cpx32 in nbg1", "bootstrap", "SERVER_TYPE=cx33,cpx32,cax21",
		"LOCATION=nbg1,fsn1")
	if !slices.ContainsFunc(o.events, func(e event) bool {
		return e.Step == "apply" && strings.HasPrefix(e.Message, "applying TalosControlPlane")
	}) {
		t.Errorf("apply did not run again\n%s", o.output)
	}
	if kinds, again := types(); len(kinds) != 3 || again != first {
		t.Errorf("servers of types %v; server %d was the first, now %d", kinds, first, again)
	}
}
