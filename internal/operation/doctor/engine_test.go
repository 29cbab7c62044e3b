package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// The check of the engine says whether the node image has to be pulled, and is content with enough inotify instances.
func TestTheEngineCheckTellsOfTheNodeImage(t *testing.T) {
	for want, e := range map[string]platform.Engine{
		"the node image kindest/node:v1 is there":           {NodeImage: "kindest/node:v1", NodeImageThere: true},
		"the node image kindest/node:v1 has to be pulled":   {NodeImage: "kindest/node:v1"},
		"cgroup v1, 8.0 GiB of memory and 40.0 GiB free in": {InotifyUsed: 60, InotifyLimit: 128},
	} {
		e.MemoryBytes, e.FreeBytes = 8*gib, 40*gib
		d := New(config.Defaults(), platform.Tools{Management: engineProvider{&clustertest.Provider{}, e}}, render.Sources{})
		if f := d.engine(t.Context()); f.Verdict != OK || !strings.Contains(f.Reason, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}
}

// pickyProvider does not use the cluster that it finds.
type pickyProvider struct {
	*clustertest.Provider
	why error
}

func (p pickyProvider) Adoptable(context.Context, string) error { return p.why }

// A management cluster that another state folder created fails the check, before a run meets it.
func TestAManagementClusterThatIsNotUsed(t *testing.T) {
	c := newClinic(t)
	c.provider.There = true
	for want, why := range map[Verdict]error{OK: nil, Failed: errors.New("this state folder did not create it")} {
		d := New(c.cfg, platform.Tools{Management: pickyProvider{c.provider, why}}, clustertest.Sources(t, c.cfg, c.overrides))
		if f := d.management(t.Context()); f.Verdict != want || why != nil && (f.Reason != why.Error() || f.WayOut == "") {
			t.Errorf("%v: %+v", why, f)
		}
	}
}

// Without a container engine one check gives the reason, and the other one points to it.
func TestOnlyTheEngineCheckGivesTheReason(t *testing.T) {
	c := newClinic(t)
	c.provider.ExistsError = errors.New("list kind clusters: exit status 1")
	found := c.examine(t)
	if f := found["management"]; f.Verdict != Unknown || !strings.Contains(f.WayOut, "check engine") ||
		strings.Contains(f.Reason, "exit status") {
		t.Errorf("management: %+v", f)
	}
	c.engine = nil // as of MANAGEMENT_KUBECONFIG
	if f := c.examine(t)["management"]; f.Verdict != Failed || !strings.Contains(f.Reason, "list kind clusters") {
		t.Errorf("without an engine: %+v", f)
	}
}
