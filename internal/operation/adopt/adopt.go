// Package adopt reads a cluster that Cluster API manages and that Slipway did not create, and makes the configuration
// and the files that describe it.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
)

// ConfigFile is the name of the configuration among the files that describe a cluster.
const ConfigFile = "bootstrap.yaml"

// Description is what describes a cluster that exists.
type Description struct {
	Kind          string `json:"kind"` // "adoption"
	Cluster       string `json:"cluster"`
	Namespace     string `json:"namespace"`     // of its Cluster API objects
	ManagesItself bool   `json:"managesItself"` // else a management cluster does
	Manager       string `json:"manager"`       // address of the API that has the objects
	// Files are the configuration and those that differ from the built-in ones. They may hold secrets, where Talos
	// patches or the values of a Helm release do.
	Files []File `json:"files"`
	// Notes say what of the cluster the files do not describe.
	Notes []string `json:"notes"`
}

// File is one of the files that describe a cluster.
type File struct {
	Path string `json:"path"` // below the folder of the configuration
	Why  string `json:"why"`
	Data []byte `json:"-"`
}

// Selection chooses the cluster among those that are managed in one place. An empty value leaves that open.
type Selection struct{ Cluster, Namespace string }

// Describe asks the cluster that holds the Cluster API objects, the cluster itself and Hetzner. It changes nothing. cfg
// has what is configured besides.
func Describe(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	chosen Selection) (*Description, error) {
	given := cfg
	found, err := choose(ctx, manager, chosen)
	if err != nil {
		return nil, err
	}
	cfg.ClusterName, cfg.Namespace = found.GetName(), found.GetNamespace()
	if err := refuseShape(ctx, cfg, manager, found); err != nil {
		return nil, err
	}
	d := &describing{cfg: cfg, tools: tools, manager: manager, Description: Description{Kind: "adoption",
		Cluster: cfg.ClusterName, Namespace: cfg.Namespace, Manager: manager.Host(), Notes: []string{}}}
	if d.ManagesItself, err = claims.IsItself(ctx, cfg, manager); err != nil {
		return nil, err
	}
	for _, describe := range []func(context.Context) error{d.readObjects, d.readEndpoint, d.readReleases, d.readManifests,
		d.readOthers} {
		if err := describe(ctx); err != nil {
			return nil, fmt.Errorf("describe cluster %s: %w", cfg.ClusterName, err)
		}
	}
	text, err := configurationText(d.cfg, given, d.ManagesItself)
	if err != nil {
		return nil, err
	}
	d.add(ConfigFile, "the configuration", text)
	return &d.Description, nil
}

// describing is a description that is being made.
type describing struct {
	Description
	cfg      config.Config // becomes the cluster's
	tools    platform.Tools
	manager  *kube.Cluster
	sources  render.Sources
	observed changes.Observed
}

func (d *describing) add(path, why string, data []byte) {
	d.Files = append(d.Files, File{Path: path, Why: why, Data: data})
}

func (d *describing) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

// choose finds the Cluster object. Where there are several that fit, its error names them.
func choose(ctx context.Context, manager *kube.Cluster, chosen Selection) (*unstructured.Unstructured, error) {
	all, err := capi.Clusters(ctx, manager)
	if err != nil {
		return nil, fmt.Errorf("look for Cluster objects in the cluster at %s: %w", manager.Host(), err)
	}
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = fmt.Sprintf("CLUSTER_NAME=%s NAMESPACE=%s", o.GetName(), o.GetNamespace())
	}
	fit := slices.DeleteFunc(slices.Clone(all), func(o unstructured.Unstructured) bool {
		return chosen.Cluster != "" && o.GetName() != chosen.Cluster ||
			chosen.Namespace != "" && o.GetNamespace() != chosen.Namespace
	})
	switch {
	case len(all) == 0:
		return nil, usage.Errorf("the cluster at %s holds no Cluster object of Cluster API, so it manages no cluster: name the "+
			"kubeconfig of the management cluster in MANAGEMENT_KUBECONFIG, which after a pivot is the cluster's own; where the "+
			"Cluster API objects are lost, readopt recreates them from a backup, which backup --from-servers makes "+
			"where there is none", manager.Host())
	case len(fit) == 0:
		return nil, usage.Errorf("the cluster at %s has no such Cluster object; it has %s", manager.Host(),
			strings.Join(names, ", "))
	case len(fit) > 1:
		return nil, usage.Errorf("the cluster at %s manages several clusters, choose one: %s", manager.Host(),
			strings.Join(names, ", "))
	}
	return &fit[0], nil
}

// refuseShape refuses a cluster that no configuration of Slipway describes.
func refuseShape(ctx context.Context, cfg config.Config, manager *kube.Cluster,
	cluster *unstructured.Unstructured) error {
	if cluster.GetDeletionTimestamp() != nil {
		return usage.Errorf("%s is being deleted", kube.Describe(cluster))
	}
	live, err := capi.Get(ctx, manager, cfg.Namespace, capi.ClusterKind, cfg.ClusterName)
	if err != nil {
		return err
	}
	for _, want := range []struct{ field, kind, name string }{
		{"infrastructureRef", capi.HetznerClusterKind.Kind, cfg.ClusterName},
		{"controlPlaneRef", capi.TalosControlPlaneKind.Kind, cfg.ControlPlaneName()}} {
		kind, name := capi.Text(live, "spec", want.field, "kind"), capi.Text(live, "spec", want.field, "name")
		if kind != want.kind || name != want.name {
			return usage.Errorf("%s: spec.%s names %s %s, and Slipway manages clusters with a %s %s there only",
				kube.Describe(live), want.field, kind, name, want.kind, want.name)
		}
	}
	return nil
}

// readObjects takes the variables' values from the cluster's objects.
func (d *describing) readObjects(ctx context.Context) (err error) {
	if d.sources, err = render.Read(render.VariablesOf(d.cfg), d.tools.Overrides); err != nil {
		return &usage.Error{Err: err}
	}
	if d.observed, err = changes.Observe(ctx, d.cfg, d.sources, d.manager); err != nil {
		return err
	}
	for _, v := range config.Variables() {
		if value, known := d.observed.Values[v.Name]; known {
			if err := v.Set(&d.cfg, value); err != nil {
				return fmt.Errorf("the cluster has %w", err)
			}
		}
	}
	d.sources.Vars = render.VariablesOf(d.cfg)
	return nil
}

// readEndpoint finds out how the Kubernetes API is addressed.
func (d *describing) readEndpoint(ctx context.Context) error {
	live, err := capi.Get(ctx, d.manager, d.cfg.Namespace, capi.HetznerClusterKind, d.cfg.ClusterName)
	if err != nil {
		return err
	}
	host := capi.Text(live, "spec", "controlPlaneEndpoint", "host")
	if host == "" {
		return usage.Errorf("%s has no control plane endpoint yet: adopt once the cluster is ready", kube.Describe(live))
	}
	if _, err := netip.ParseAddr(host); err != nil {
		d.cfg.ControlPlaneEndpoint = host
		return nil
	}
	found, err := hetzner.FindEndpoint(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	if _, foreign := errors.AsType[*hetzner.ForeignError](err); err != nil && !foreign {
		return err
	}
	d.cfg.ControlPlaneEndpoint = config.EndpointPrimaryIP
	if found == nil || found.IPv4.String() != host {
		d.cfg.ControlPlaneEndpoint = config.EndpointLoadBalancer
		d.note("the address of the Kubernetes API, %s, is the load balancer's: it is lost with it, and no restore brings "+
			"it back", host)
	}
	return nil
}

// workload is the cluster itself.
func (d *describing) workload(ctx context.Context) (*kube.Cluster, error) {
	if d.ManagesItself {
		return d.manager, nil
	}
	data, err := connect.WorkloadKubeconfig(ctx, d.manager, d.cfg.Namespace, d.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	return d.tools.Connect(data)
}

// readOthers notes the objects that no file describes.
func (d *describing) readOthers(ctx context.Context) error {
	workers, err := capi.List(ctx, d.manager, d.cfg.Namespace, capi.MachineDeploymentKind, d.cfg.ClusterName)
	if err != nil && !kube.Absent(err) {
		return err
	}
	for i := range workers {
		d.note("%s is left as it is: Slipway changes, upgrades and scales worker pools that it has created only",
			kube.Describe(&workers[i]))
	}
	live, err := capi.Get(ctx, d.manager, d.cfg.Namespace, capi.ClusterKind, d.cfg.ClusterName)
	if err == nil && connect.Paused(live) {
		d.note("%s is paused: no run begins until it is unpaused", kube.Describe(live))
	}
	return err
}
