package adopt

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// readManifests compares the manifests with the live objects. Where applying them would change one, they are written
// anew from the live objects.
func (d *describing) readManifests(ctx context.Context) error {
	differ, err := d.differences(ctx)
	if err != nil || len(differ) == 0 {
		return err
	}
	for _, of := range []struct {
		source *render.Source
		why    string
	}{{&d.sources.HealthCheck, "the cluster's MachineHealthCheck"}, {&d.sources.Cluster, "the cluster's objects"}} {
		concerned, err := concerns(*of.source, differ)
		if err != nil {
			return err
		}
		if len(concerned) == 0 {
			continue
		}
		if !of.source.Replaceable() {
			d.note("%s is left as it is, and applying it %s", of.source.Name, strings.Join(concerned, "; "))
			continue
		}
		if of.source.Data, err = d.manifest(ctx, *of.source); err != nil {
			return err
		}
		of.source.Own = true
		d.add(of.source.Path, of.why+", because the built-in file differs: applying it "+strings.Join(concerned, "; "),
			of.source.Data)
	}
	if differ, err = d.differences(ctx); err != nil {
		return err
	}
	for _, c := range differ {
		d.note("applying the manifests %s", c)
	}
	return nil
}

// differences are what applying the manifests would change.
func (d *describing) differences(ctx context.Context) ([]changes.Consequence, error) {
	rendered, err := changes.RenderObserved(d.cfg, d.sources, d.observed)
	if err != nil {
		return nil, err
	}
	all, err := changes.ConsequencesInCluster(ctx, d.cfg, d.tools, d.manager, rendered)
	return slices.DeleteFunc(all, func(c changes.Consequence) bool { return c.Effect == changes.EffectKeeps }), err
}

// concerns are those of the differences that a file makes, in words.
func concerns(s render.Source, differ []changes.Consequence) (found []string, err error) {
	kinds := map[string]bool{}
	docs, err := s.Documents()
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		kinds[o.GetKind()] = true
	}
	for _, c := range differ {
		if kinds[c.Object.Kind] {
			found = append(found, c.String())
		}
	}
	return found, nil
}

const manifestHeader = `# Written by "bootstrap adopt" from the live objects, in place of the built-in file.
# Values of bootstrap.yaml stand as variables, so that they are changed there.
`

// manifest writes a file of the manifests anew: each object that is in it and exists as it is live, with the variables
// where the file has them and they have the live value.
func (d *describing) manifest(ctx context.Context, s render.Source) ([]byte, error) {
	docs, err := s.Documents()
	if err != nil {
		return nil, err
	}
	text := bytes.NewBufferString(manifestHeader)
	for _, doc := range docs {
		var written unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &written.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		filled, err := s.Object(doc, d.observed.Variables(d.sources))
		if err != nil {
			return nil, err
		}
		live, err := d.live(ctx, filled)
		if err != nil {
			return nil, err
		}
		if live == nil {
			fmt.Fprintf(text, "# There is no %s %s.\n", filled.GetKind(), filled.GetName())
			continue
		}
		spec := adapted(live.Object["spec"], written.Object["spec"], filled.Object["spec"])
		if filled.GroupVersionKind() != capi.MachineTemplateKind { // which is known by its content
			spec = withoutEmpty(spec)
		}
		o := map[string]any{"apiVersion": written.GetAPIVersion(), "kind": written.GetKind(),
			"metadata": written.Object["metadata"], "spec": spec}
		out, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", kube.Describe(live), err)
		}
		text.WriteString("---\n")
		text.Write(out)
	}
	return text.Bytes(), nil
}

// live is the object that exists where a manifest has one; nil: there is none. The control plane's server template is
// that which the control plane names.
func (d *describing) live(ctx context.Context, filled *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := filled.GetName()
	if filled.GroupVersionKind() == capi.MachineTemplateKind {
		tcp, err := capi.Get(ctx, d.manager, d.cfg.Namespace, capi.TalosControlPlaneKind, d.cfg.ControlPlaneName())
		if err != nil {
			return nil, err
		}
		name = orders.Template(tcp)
	}
	live, err := capi.Get(ctx, d.manager, d.cfg.Namespace, filled.GroupVersionKind(), name)
	if kube.Absent(err) {
		return nil, nil
	}
	if err == nil && live.GroupVersionKind() == capi.ClusterKind { // Cluster API takes it from the HetznerCluster
		unstructured.RemoveNestedField(live.Object, "spec", "controlPlaneEndpoint")
	}
	return live, err
}

// adapted is a live value as a manifest writes it: what the manifest has there, where that comes to the live value once
// its variables are filled in, else the live value itself.
func adapted(live, written, filled any) any {
	switch live := live.(type) {
	case map[string]any:
		written, _ := written.(map[string]any)
		filled, _ := filled.(map[string]any)
		if refersToSame(live, filled) {
			return written
		}
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(live)) {
			out[key] = adapted(live[key], written[key], filled[key])
		}
		return out
	case []any:
		written, _ := written.([]any)
		filled, _ := filled.([]any)
		out := make([]any, len(live))
		for i := range live {
			var w, f any
			if len(written) == len(live) && len(filled) == len(live) {
				w, f = written[i], filled[i]
			}
			out[i] = adapted(live[i], w, f)
		}
		return out
	}
	if w, is := written.(string); is && strings.Contains(w, "${") && fmt.Sprint(live) == fmt.Sprint(filled) {
		return w
	}
	if text, is := live.(string); is {
		return strings.ReplaceAll(text, "${", "$${")
	}
	return live
}

// withoutEmpty leaves out empty texts and mappings, which API servers write where people write nothing.
func withoutEmpty(v any) any {
	fields, is := v.(map[string]any)
	if !is {
		return v
	}
	left := map[string]any{}
	for key, value := range fields {
		value = withoutEmpty(value)
		if m, is := value.(map[string]any); value != "" && (!is || len(m) > 0) {
			left[key] = value
		}
	}
	return left
}

// refersToSame tells of two references to one object. A template is called otherwise by each content that it has had.
func refersToSame(live, filled map[string]any) bool {
	if live["kind"] == nil || live["name"] == nil || live["kind"] != filled["kind"] {
		return false
	}
	return live["name"] == filled["name"] || live["kind"] == capi.MachineTemplateKind.Kind
}
