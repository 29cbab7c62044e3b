// Package stockout continues a control plane with another server type or location, when Hetzner has run out of the one
// that its next server would be created with.
package stockout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// outOfStock is Hetzner's code for a server type that it has no more of, as CAPH's condition quotes it.
const outOfStock = "resource_unavailable"

// askAgain is how long an answer of Hetzner about its stock is good for.
const askAgain = 15 * time.Second

// Watch looks after one control plane while a step waits for its servers.
type Watch struct {
	Cfg     config.Config
	Tools   platform.Tools
	Sources render.Sources
	Say     func(format string, args ...any)

	asked   time.Time
	ordered time.Time // when servers were ordered again last
	keeps   string    // what Check said when Hetzner was asked last
	Changed []string  // what it continued with, in words
}

// Check finds Machines that get no server because its type is out of stock. Where the operator agreed beforehand, it
// continues with the next configured server type or location that is in stock: servers that exist stay as they are, and
// Machines without a server are deleted, so that the control plane provider creates others. busy tells that it has
// changed something just now. keeps says what keeps the servers from being created otherwise, and what to do; empty:
// stock is no problem, or only one server type in one location is configured. What CAPH does not order again by itself
// is ordered again: when it is in stock again, or every minute where nothing else is configured.
func (w *Watch) Check(ctx context.Context, mgmt *kube.Cluster) (busy bool, keeps string, err error) {
	several := w.Cfg.ChoosesPlacement()
	if !several && !w.ordersOnce() {
		return false, "", nil
	}
	c, err := read(ctx, w.Cfg, mgmt)
	if err != nil || c == nil {
		return false, "", err
	}
	if !several {
		return false, "", w.orderAgain(ctx, mgmt, c.stuck())
	}
	if did, err := w.finish(ctx, mgmt, c); did || err != nil {
		return did, "", err
	}
	stuck := c.stuck()
	if len(stuck) == 0 {
		w.asked, w.keeps = time.Time{}, ""
		return false, "", nil
	}
	if w.Tools.Consent {
		if did, err := w.deleteSuperseded(ctx, mgmt, c, stuck); did || err != nil {
			return did, "", err
		}
	}
	if time.Since(w.asked) < askAgain {
		return false, w.keeps, nil
	}
	busy, keeps, err = w.instead(ctx, mgmt, c, stuck)
	w.asked, w.keeps = time.Now(), keeps
	return busy, keeps, err
}

// instead asks for another server type or location, and continues with it where the operator agreed.
func (w *Watch) instead(ctx context.Context, mgmt *kube.Cluster, c *controlPlane, stuck []member) (busy bool,
	keeps string, err error) {
	one := stuck[0]
	has := render.PlacementOf(c.infrastructure, c.tcp, c.template)
	out := fmt.Sprintf("server type %s is out of stock in %s", has.ServerType, one.location(has))
	choice, again, passed, err := capacity.Instead(ctx, w.Tools.Hetzner, w.Cfg, has, one.location(has), w.usable(c))
	var unknown *hetzner.Unknown
	switch {
	case errors.As(err, &unknown):
		return false, fmt.Sprintf("%s, and %v", out, err), nil
	case err != nil:
		return false, "", err
	case again:
		return false, fmt.Sprintf("server type %s is in stock in %s again, and CAPH is to try again", has.ServerType,
			one.location(has)), w.orderAgain(ctx, mgmt, stuck)
	case choice == nil:
		return false, fmt.Sprintf("nothing else that is configured is in stock (%s): the servers that exist are kept; "+
			"add another server type to SERVER_TYPE or location to LOCATION and run again with --yes, or wait",
			strings.Join(passed, "; ")), nil
	case !w.Tools.Consent:
		return false, fmt.Sprintf("%s is in stock: run again with --yes to continue with it; the servers that exist stay "+
			"as they are", choice.Describe()), nil
	}
	w.Say("%s: continuing with %s, as agreed; the servers that exist stay as they are", out, choice.Describe())
	w.Changed = append(w.Changed, fmt.Sprintf("%s, because %s", choice.Describe(), out))
	return true, "", w.change(ctx, mgmt, c, has, *choice)
}

// usable tells whether there is an image for an architecture: CAPH needs exactly one.
func (w *Watch) usable(c *controlPlane) capacity.Usable {
	return func(ctx context.Context, architecture string) (string, error) {
		name := w.image(c, architecture)
		_, err := hetzner.FindImage(ctx, w.Tools.Hetzner, name, architecture, w.Tools.Command("image", "--prune"))
		var mismatch *hetzner.ImageError
		if errors.As(err, &mismatch) {
			return fmt.Sprintf("%v (IMAGE_ARCHITECTURES=%s creates one)", err, architecture), nil
		}
		return "", err
	}
}

// image is the name of the image for servers of an architecture: the one that the servers have, with another
// architecture in it.
func (w *Watch) image(c *controlPlane, architecture string) string {
	has := capi.Text(c.template, "spec", "template", "spec", "imageName")
	for _, other := range []string{"amd64", "arm64"} {
		if prefix := "talos-" + other + "-"; w.Cfg.ImageName == "" && strings.HasPrefix(has, prefix) {
			return "talos-" + architecture + "-" + strings.TrimPrefix(has, prefix)
		}
	}
	return has
}

// member is a Machine of the control plane with the object of its server.
type member struct{ machine, server *unstructured.Unstructured }

// location is where the server is to be created.
func (m member) location(has render.Placement) string {
	if domain := capi.Text(m.machine, "spec", "failureDomain"); domain != "" {
		return domain
	}
	return has.Locations[0]
}

// hasServer tells whether Cluster API knows a server of the Machine.
func (m member) hasServer() bool {
	return capi.Text(m.machine, "spec", "providerID") != "" || capi.Text(m.server, "spec", "providerID") != "" ||
		capi.Text(m.machine, "status", "nodeRef", "name") != ""
}

// controlPlane are the objects of one.
type controlPlane struct {
	cluster, infrastructure, tcp, template *unstructured.Unstructured
	members                                []member
}

// read reads the objects; nil: they are not all there (yet), or nothing may be changed in them.
func read(ctx context.Context, cfg config.Config, mgmt *kube.Cluster) (*controlPlane, error) {
	c := &controlPlane{}
	var err error
	get := func(kind schema.GroupVersionKind, name string) (o *unstructured.Unstructured) {
		if err == nil {
			o, err = capi.Get(ctx, mgmt, cfg.Namespace, kind, name)
		}
		return o
	}
	c.cluster = get(capi.ClusterKind, cfg.ClusterName)
	c.infrastructure = get(capi.HetznerClusterKind, cfg.ClusterName)
	if c.tcp = get(capi.TalosControlPlaneKind, cfg.ControlPlaneName()); err == nil {
		c.template = get(capi.MachineTemplateKind, templateOf(c.tcp))
	}
	switch {
	case kube.Absent(err):
		return nil, nil
	case err != nil:
		return nil, err
	case c.cluster.GetDeletionTimestamp() != nil || c.tcp.GetDeletionTimestamp() != nil ||
		capi.AtRest(c.cluster, c.tcp):
		return nil, nil
	}
	if len(render.PlacementOf(c.infrastructure, nil, nil).Locations) == 0 {
		return nil, nil
	}
	machines, err := capi.List(ctx, mgmt, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	servers, err := capi.List(ctx, mgmt, cfg.Namespace, capi.HCloudMachineKind, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	for _, m := range capi.ControlPlaneMachines(machines) {
		server := situation.Named(servers, capi.Text(&m, "spec", "infrastructureRef", "name"))
		if server.GetName() != "" && m.GetDeletionTimestamp() == nil && server.GetDeletionTimestamp() == nil {
			c.members = append(c.members, member{&m, server})
		}
	}
	return c, nil
}

func templateOf(tcp *unstructured.Unstructured) string {
	return capi.Text(tcp, "spec", "infrastructureTemplate", "name")
}

// stuck are the Machines whose server CAPH could not create because its type is out of stock.
func (c *controlPlane) stuck() []member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m member) bool {
		return m.hasServer() || !strings.Contains(capi.Troubles(m.server), outOfStock)
	})
}

// orderPause is the least time between two orders of the same servers that CAPH does not order again by itself.
const orderPause = time.Minute

// ordersOnce tells whether the configured CAPH orders a server that is out of stock only once: v1.0.12 and newer. Of
// older ones nothing has to be read.
func (w *Watch) ordersOnce() bool {
	v, err := semver.ParseTolerant(w.Cfg.CAPHVersion)
	return err == nil && v.GTE(semver.Version{Major: 1, Minor: 0, Patch: 12})
}

// orderAgain has CAPH order the servers again that it has given up: it looks at a machine again when that changes, so
// an annotation is set. Machines that CAPH orders again by itself are left to it, and those that it never orders again
// are deleted (see situation.DeleteUnmade).
func (w *Watch) orderAgain(ctx context.Context, mgmt *kube.Cluster, stuck []member) error {
	if time.Since(w.ordered) < orderPause {
		return nil
	}
	for _, m := range stuck {
		if !capi.GivenUp(m.server) || capi.ProvisioningFailed(m.server) {
			continue
		}
		w.ordered = time.Now()
		err := merge(ctx, mgmt, m.server, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{capi.OrderedAgainAnnotation: w.ordered.UTC().Format(time.RFC3339)}}})
		if err != nil {
			return err
		}
	}
	return nil
}
