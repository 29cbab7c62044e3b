package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// FindDeviations lists what the configuration asks for and the cluster that manages itself is not. It asks the cluster,
// and reads what the journal has of the configuration that was last applied.
func FindDeviations(
	ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, recorded flow.Snapshot,
	origin DeviationOrigin,
) ([]Deviation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ComparedWithin, fmt.Errorf("no answer within %s", ComparedWithin))
	defer cancel()
	self, err := connect.Cluster(tools, platform.Kubeconfig)
	if err == nil {
		d := deviations{cfg: cfg, tools: tools, sources: sources, self: self, applied: appliedLast(tools, recorded),
			origin: origin}
		if err = d.find(ctx); err == nil {
			return d.found, nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return nil, fmt.Errorf("compare the configuration with cluster %s: %w", cfg.ClusterName, err)
}

// ComparedWithin bounds the comparison as one Verify is bounded: a cluster that takes longer could not be asked.
const ComparedWithin = flow.VerifyWithin

// DeviationOrigin tells where the value of a field of the configuration comes from ("bootstrap.yaml:3:12"), and whether
// the operator wrote it there: a default is not written anywhere.
type DeviationOrigin func(field string) (place string, written bool)

// deviations is one comparison of the configuration with the cluster.
type deviations struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
	self    *kube.Cluster
	applied lastApplied
	origin  DeviationOrigin
	found   []Deviation
}

func (d *deviations) find(ctx context.Context) error {
	o, err := Observe(ctx, d.cfg, d.sources, d.self)
	if err != nil {
		return err
	}
	d.compare(o.Values)
	rest, err := RenderObserved(d.cfg, d.sources, o)
	if err != nil {
		return err
	}
	d.manifests(o.live, rest)
	return nil
}

// Observed is what a cluster that manages itself tells of the variables of the manifests.
type Observed struct {
	live        LiveObjects
	Values      map[string]string // variable → value
	image, zone string            // what the manifests need besides
	endpoint    render.Endpoint
	placement   render.Placement
}

// Seen is what of the cluster known problems depend on, as config names it.
func (o Observed) Seen() []string { return o.placement.Seen() }

// Observe asks the cluster for its objects, and for the variables' values in them.
func Observe(ctx context.Context, cfg config.Config, sources render.Sources, self *kube.Cluster) (Observed, error) {
	infrastructure, err := capi.Get(ctx, self, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return Observed{}, err
	}
	o := Observed{zone: capi.Text(infrastructure, "spec", "hcloudNetwork", "networkZone"),
		endpoint: render.EndpointOf(infrastructure)}
	if o.placement, err = situation.LivePlacement(ctx, cfg, self); err != nil {
		return Observed{}, err
	}
	v := render.ManifestVariables(sources, "image", o.zone, o.endpoint).Placed(o.placement)
	r, err := render.Manifests(cfg, sources, v)
	if err != nil {
		return Observed{}, err
	}
	if o.live, err = ReadLiveObjects(ctx, self, cfg.Namespace, cfg.ClusterName, r.Now); err != nil {
		return Observed{}, err
	}
	if o.Values, err = liveValues(cfg, sources, o.live, v); err != nil {
		return Observed{}, err
	}
	if o.image = imageOf(o.live, cfg); o.image != "" {
		o.Values["IMAGE_NAME"] = o.image
		if version := config.TalosOfImage(o.image); config.SameMinor(version, o.Values["TALOS_VERSION"]) {
			o.Values["TALOS_VERSION"] = version // a talosVersion of the same minor means no other configuration
		}
		if o.image != cfg.ImageName && byDefault(o.image, o.Values["TALOS_VERSION"]) {
			o.Values["IMAGE_NAME"] = ""
		}
	}
	installed, err := capi.InstalledProviders(ctx, self)
	if err != nil && !kube.Absent(err) {
		return Observed{}, err
	}
	for _, p := range capi.ConfiguredProviders(cfg) {
		if has := installed[p.Label]; has != "" {
			o.Values[p.Variable] = has
		}
	}
	return o, nil
}

// isList tells of a variable whose value is a list, of which a cluster has one word.
func isList(variable string) bool { return variable == "SERVER_TYPE" || variable == "LOCATION" }

// compare compares the variables' values.
func (d *deviations) compare(live map[string]string) {
	for _, variable := range config.Variables() {
		has, known := live[variable.Name]
		wanted := variable.Get(d.cfg)
		if !known || has == wanted || isList(variable.Name) && slices.Contains(config.Listed(wanted), has) {
			continue
		}
		place, written := d.origin(variable.Field)
		one := Deviation{Variable: variable.Name, Field: variable.Field, Place: place, Wanted: wanted, Live: has}
		one.Requested = d.applied.asked(variable.Name, wanted, written)
		one.Change, one.Keep = one.change(d.tools), one.keep()
		d.found = append(d.found, one)
	}
}

// With is the same with other values of variables, and with another image where one is named.
func (o Observed) With(values map[string]string, image string) Observed {
	o.Values = maps.Clone(o.Values)
	maps.Copy(o.Values, values)
	if image != "" {
		o.image = image
		o.Values["IMAGE_NAME"] = image
	}
	if serverType := values["SERVER_TYPE"]; serverType != "" {
		o.placement.ServerType = serverType
	}
	return o
}

// Image is the name of the image that the control plane's servers are made from.
func (o Observed) Image() string { return o.image }

// RenderObserved renders the manifests with the variables' values that a cluster has.
func RenderObserved(cfg config.Config, sources render.Sources, o Observed) (*render.Rendered, error) {
	for _, variable := range config.Variables() {
		if value, known := o.Values[variable.Name]; known {
			if err := variable.Set(&cfg, value); err != nil {
				return nil, fmt.Errorf("the cluster has %w", err)
			}
		}
	}
	sources.Vars = render.VariablesOf(cfg)
	return render.Manifests(cfg, sources, o.Variables(sources))
}

// Variables are those of the sources, and what the cluster has of those that only a run knows.
func (o Observed) Variables(sources render.Sources) render.Variables {
	return render.ManifestVariables(sources, o.image, o.zone, o.endpoint).Placed(o.placement)
}

// manifests says what applying the manifests would still do.
func (d *deviations) manifests(live LiveObjects, r *render.Rendered) {
	withoutPools(d.cfg, live, r.Now)
	for _, c := range ConsequencesOf(live, r.Now, 0) {
		if c.Effect == EffectKeeps || onlyTheTemplatesName(live, c) {
			continue
		}
		file := d.fileOf(c.Object)
		one := Deviation{Place: file.Name, What: c.Summary(), Requested: d.applied.edited(file) || d.patchEdited(c.Object),
			Keep: "write it into that file as the cluster has it"}
		one.Change = one.change(d.tools)
		d.found = append(d.found, one)
	}
}

// withoutPools gives a rendered HetznerCluster the worker pools' placement groups that the live one has: the step
// workers sees to those, also after the pivot.
func withoutPools(cfg config.Config, live LiveObjects, rendered []*unstructured.Unstructured) {
	was := live.Find(capi.HetznerClusterKind.GroupKind(), cfg.ClusterName)
	if was == nil {
		return
	}
	ofPools := render.PlacementGroups(cfg)
	for i := range live.Others {
		o := &live.Others[i]
		if o.GroupVersionKind().GroupKind() == capi.MachineTemplateKind.GroupKind() &&
			o.GetLabels()[capi.WorkerPoolLabel] != "" {
			ofPools = append(ofPools, capi.Text(o, "spec", "template", "spec", "placementGroupName"))
		}
	}
	path := []string{"spec", "hcloudPlacementGroups"}
	has, _, _ := unstructured.NestedSlice(was.Object, path...)
	for _, o := range rendered {
		if o.GroupVersionKind() != capi.HetznerClusterKind {
			continue
		}
		wanted, _, _ := unstructured.NestedSlice(o.Object, path...)
		same := render.WithPlacementGroups(wanted, nil, ofPools)
		if reflect.DeepEqual(same, render.WithPlacementGroups(has, nil, ofPools)) {
			_ = unstructured.SetNestedSlice(o.Object, has, path...)
		}
	}
}

// fileOf is the file of the manifests that an object is in, or one that it may have been taken out of.
func (d *deviations) fileOf(o platform.Object) render.Source {
	files := d.sources.Objects()
	for _, s := range files {
		docs, err := Documents(d.sources, s)
		if err != nil {
			continue
		}
		for _, name := range []string{o.Name, WithoutHash(o.Name)} {
			if _, there := docs[o.Kind+" "+name]; there {
				return s
			}
		}
	}
	if i := slices.IndexFunc(files, d.applied.edited); i >= 0 {
		return files[i]
	}
	return files[0]
}

// patchEdited reports whether an object's part in another file was edited: the patch for OpenID Connect, where it is
// used.
func (d *deviations) patchEdited(o platform.Object) bool {
	return o.Kind == capi.TalosControlPlaneKind.Kind && d.applied.values["OIDC_ISSUER_URL"] != "" &&
		d.applied.edited(d.sources.OidcPatch)
}

// onlyTheTemplatesName tells of servers that would be replaced because a template of the same content has another name,
// as one has that was made with kubectl. It asks for nothing.
func onlyTheTemplatesName(live LiveObjects, c Consequence) bool {
	const template = "HCloudMachineTemplate "
	if c.Effect != EffectReplaces || len(c.Why) != 1 || !strings.HasPrefix(c.Why[0], template) {
		return false
	}
	was, _, _ := strings.Cut(strings.TrimPrefix(c.Why[0], template), " ")
	return live.Find(capi.MachineTemplateKind.GroupKind(), was) != nil
}

// imageOf is the name of the image that the live control plane's servers are made from.
func imageOf(live LiveObjects, cfg config.Config) string {
	controlPlane := live.Find(capi.TalosControlPlaneKind.GroupKind(), cfg.ControlPlaneName())
	if controlPlane == nil {
		return ""
	}
	template := live.Find(capi.MachineTemplateKind.GroupKind(), orders.Template(controlPlane))
	if template == nil {
		return ""
	}
	return capi.Text(template, "spec", "template", "spec", "imageName")
}

// byDefault reports whether an image is called as one is where IMAGE_NAME is empty.
func byDefault(image, talosVersion string) bool {
	c := config.Config{TalosVersion: talosVersion}
	return image == c.Image("amd64") || image == c.Image("arm64")
}

// lastApplied is what the journal knows of the configuration that was last applied.
type lastApplied struct {
	known  bool
	values map[string]string // variable → value
	sums   []string          // of the files
	seen   map[string]string // variable → value that the cluster had when access looked last
}

// appliedLast reads the records of what applied the manifests and installed the providers.
func appliedLast(tools platform.Tools, s flow.Snapshot) lastApplied {
	out := lastApplied{values: map[string]string{}}
	files, since := applied(tools, s)
	if len(files) > 0 {
		out.known = true
		if _, configured := files["oidcPatch"]; !configured {
			out.values["OIDC_ISSUER_URL"], out.values["OIDC_CLIENT_ID"] = "", ""
		}
		for _, file := range files {
			maps.Copy(out.values, file.Variables)
			out.sums = append(out.sums, file.SHA256)
		}
	}
	var access struct{ Values map[string]string }
	if at := s.Steps["access"]; !at.Ended.Before(since) && json.Unmarshal(at.Output, &access) == nil {
		out.seen = access.Values
	}
	var recorded struct{ Versions map[string]string }
	if json.Unmarshal(s.Steps["capi-init"].Spec, &recorded) == nil {
		for _, p := range capi.ConfiguredProviders(config.Config{}) {
			if version := recorded.Versions[p.Label]; version != "" {
				out.values[p.Variable] = version
			}
		}
	}
	return out
}

// asked reports whether a value is a request: another one than was last applied, and than the cluster had since; or
// where that is not known, one that is written somewhere.
func (a lastApplied) asked(variable, wanted string, written bool) bool {
	if had, known := a.seen[variable]; known && had == wanted {
		return false // it was the cluster's: that was changed, and not the configuration
	}
	if was, known := a.values[variable]; known {
		return was != wanted
	}
	return written
}

// edited reports whether a file is another one than was last applied; where that is not known, whether it is the user's
// own.
func (a lastApplied) edited(s render.Source) bool {
	if !a.known {
		return s.Own
	}
	return !slices.Contains(a.sums, render.EffectiveText{Data: s.Data}.Sum()) // manifests are not merged
}
