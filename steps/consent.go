package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// consent refuses to apply what would take servers away from a cluster that is there, unless the operator agreed beforehand.
// A run that merely lacks an argument of the last one, or does not know what was changed with kubectl since, would otherwise
// shrink the cluster, or replace every server of it.
func (b *bootstrapper) consent(ctx context.Context, say flow.Say, mgmt *kube.Cluster, r *rendered) error {
	live, err := get(ctx, mgmt, talosControlPlaneKind, b.cfg.ControlPlaneName())
	if kube.Absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.now, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind() == talosControlPlaneKind && o.GetName() == live.GetName()
	})
	if i < 0 {
		return nil // manifests of one's own, without a control plane
	}
	template, err := b.templateChanges(ctx, mgmt, text(live, "spec", "infrastructureTemplate", "name"), r)
	if err != nil {
		return err
	}
	consequences := harm(live, r.now[i], template)
	if len(consequences) == 0 {
		return nil
	}
	what := strings.Join(consequences, "; ")
	if b.tools.Consent {
		say("as agreed, this %s", what)
		return nil
	}
	return fmt.Errorf("the cluster is there already, and applying the manifests as they are configured now %s: "+
		"to keep the cluster as it is, set its values in bootstrap.yaml (%s); to have it changed, run again with --yes", what, keep(live))
}

// keep is how bootstrap.yaml says what the live control plane has.
func keep(live *unstructured.Unstructured) string {
	return fmt.Sprintf("controlPlaneReplicas: %d, kubernetesVersion: %s, talosVersion: %s, and what else is named here",
		number(live, "spec", "replicas"), text(live, "spec", "version"), text(live, "spec", "controlPlaneConfig", "controlplane", "talosVersion"))
}

// harm lists what applying a TalosControlPlane over the live one does to its servers: "removes 2 of its 5 servers". Growing
// does them none. template are the differences between the server templates.
func harm(live, wanted *unstructured.Unstructured, template []string) []string {
	var done []string
	has, wants := number(live, "spec", "replicas"), number(wanted, "spec", "replicas")
	if wants < has {
		done = append(done, fmt.Sprintf("removes %d of its %d servers (CONTROL_PLANE_REPLICAS %d → %d)", has-wants, has, has, wants))
	}
	changes := template
	if was, is := text(live, "spec", "version"), text(wanted, "spec", "version"); was != is {
		change := fmt.Sprintf("Kubernetes %s → %s", was, is)
		if older(is, was) {
			change += ", a downgrade, which Kubernetes does not support"
		}
		changes = append(changes, change)
	}
	config := func(o *unstructured.Unstructured) map[string]any {
		m, _, _ := unstructured.NestedMap(o.Object, "spec", "controlPlaneConfig", "controlplane")
		return m
	}
	changes = append(changes, differences("", config(live), config(wanted))...)
	if len(changes) > 0 {
		done = append(done, fmt.Sprintf("replaces all its %d servers one after another: %s", has, strings.Join(changes, ", ")))
	}
	return done
}

func older(a, b string) bool {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	return errA == nil && errB == nil && va.LessThan(vb)
}

// templateChanges are the differences between the live control plane's server template and the one to be applied. It may be
// another object with the same content: then the servers are replaced all the same.
func (b *bootstrapper) templateChanges(ctx context.Context, mgmt *kube.Cluster, name string, r *rendered) ([]string, error) {
	if name == r.template {
		return nil, nil
	}
	another := []string{fmt.Sprintf("HCloudMachineTemplate %s → %s", name, r.template)}
	live, err := get(ctx, mgmt, machineTemplateKind, name)
	if kube.Absent(err) {
		return another, nil
	}
	if err != nil {
		return nil, err
	}
	server := func(o *unstructured.Unstructured) map[string]any {
		m, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		return m
	}
	for _, o := range r.now {
		if o.GroupVersionKind() == machineTemplateKind && o.GetName() == r.template {
			if found := differences("server ", server(live), server(o)); len(found) > 0 {
				return found, nil
			}
		}
	}
	return another, nil
}

// differences names the fields of two objects that differ, with their values where they fit into a sentence. An empty value
// is none: API servers and webhooks write such where people write nothing.
func differences(prefix string, was, is map[string]any) []string {
	var found []string
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, b := plain(was[key]), plain(is[key])
		if a == nil && b == nil || reflect.DeepEqual(a, b) {
			continue
		}
		if textA, textB, ok := short(a, b); ok {
			found = append(found, prefix+key+" "+textA+" → "+textB)
		} else {
			found = append(found, prefix+key)
		}
	}
	return found
}

// plain is a value as JSON has it, without anything empty in it; nil when nothing is left.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		left := map[string]any{}
		for key, child := range v {
			if child = plain(child); child != nil {
				left[key] = child
			}
		}
		if len(left) > 0 {
			return left
		}
	case []any:
		if len(v) > 0 {
			return v
		}
	case string:
		if v != "" {
			return v
		}
	case nil:
	default:
		if data, err := json.Marshal(v); err == nil { // 3 and 3.0 are one number
			return string(data)
		}
		return v
	}
	return nil
}

// short writes two values, when neither is a list, an object or a text of several lines.
func short(a, b any) (string, string, bool) {
	write := func(v any) (string, bool) {
		switch v := v.(type) {
		case nil:
			return "(none)", true
		case string:
			return v, !strings.Contains(v, "\n")
		}
		return "", false
	}
	textA, okA := write(a)
	textB, okB := write(b)
	return textA, textB, okA && okB
}
