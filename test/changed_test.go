package test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TestChangedBeforeEtcd changes the servers while the first one boots: Cluster API makes another in its place, starts
// no etcd before the first is gone, and takes none away before etcd runs. wait-cp has to.
func TestChangedBeforeEtcd(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	with := []string{"--lab", "CONTROL_PLANE_REPLICAS=1"}
	run := func(args ...string) outcome {
		o := c.run(nil, append(args, with...)...)
		if o.exit != 0 {
			t.Fatalf("%v: exit %d\n%s", args, o.exit, o.end())
		}
		return o
	}
	run("capi-init")
	c.lab("fault", "add", "slow-boot", "server=k8s-control-plane-*", "delay=30s", "times=1")
	run("apply")
	p := c.project()
	var old []*hcloud.Server
	eventually(t, "the first server", time.Minute, func(context.Context) string {
		if old = p.clusterServers(t); len(old) == 0 {
			return "there is none"
		}
		return ""
	})
	// The same change in the plan, in the refusal and in the plan after the refusal: none hides a part of it.
	told := "replaces the only server of TalosControlPlane k8s-control-plane one after another: server type " +
		"cx33 → cx43 (" + old[0].Name + "; new: k8s-control-plane-"
	change := append([]string{"SERVER_TYPE=cx43"}, with...)
	planned := func() {
		t.Helper()
		out, err := c.exec(t.Context(), append([]string{"plan", "wait-cp", "--output", "json"}, change...)...)
		if err != nil || !strings.Contains(out, told) || !strings.Contains(out, `"needsConsent": true`) {
			t.Errorf("the plan: %v\n%s", err, out)
		}
	}
	planned()
	if o := c.run(nil, append([]string{"wait-cp"}, change...)...); o.exit != 2 || !strings.Contains(o.output, told) ||
		!strings.Contains(o.output, "--yes") {
		t.Errorf("without consent: exit %d\n%s", o.exit, o.end())
	}
	planned()
	o := run("wait-cp", "--yes", "SERVER_TYPE=cx43")
	deleted := slices.DeleteFunc(slices.Clone(o.events),
		func(e event) bool { return e.Step != "wait-cp" || !strings.HasPrefix(e.Message, "deleting Machine ") })
	if len(deleted) != 1 || !strings.Contains(deleted[0].Message, "server "+old[0].Name+": ") ||
		!strings.Contains(deleted[0].Message, "has 2 Machines for 1 replicas") {
		t.Errorf("what it takes away: %+v; server %s was the first", deleted, old[0].Name)
	}
	eventually(t, "the first server to be gone", time.Minute, func(context.Context) string {
		switch is := p.clusterServers(t); {
		case len(is) != 1:
			return "there is more than one"
		case is[0].ID == old[0].ID || is[0].ServerType.Name != "cx43":
			t.Errorf("server %s of type %s is left", is[0].Name, is[0].ServerType.Name)
		}
		return ""
	})
}
