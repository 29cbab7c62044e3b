package upgrade

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// madeFrom is what a control plane server was made from. A field is nil or empty where that is not known.
type madeFrom struct {
	Version  string // of Kubernetes
	Template string // name of the HCloudMachineTemplate
	Config   any    // TalosConfigSpec
}

// fromControlPlane is what a TalosControlPlane makes servers from.
func fromControlPlane(tcp *unstructured.Unstructured) madeFrom {
	return madeFrom{capi.Text(tcp, "spec", "version"), capi.Text(tcp, "spec", "infrastructureTemplate", "name"),
		controlPlaneSpecOf(tcp)}
}

// same compares as the control plane provider does, which leaves a server alone of which it does not know that it
// differs (CACPPT v0.5.13, controllers/controlplane.go, MachinesNeedingRollout).
func (m madeFrom) same(other madeFrom) bool {
	return m.Version == other.Version &&
		(m.Template == "" || other.Template == "" || m.Template == other.Template) &&
		(m.Config == nil || other.Config == nil || jsonEqual(withoutZeros(m.Config), withoutZeros(other.Config)))
}

// withoutZeros leaves out fields that have the zero value of their type, as absent ones do.
func withoutZeros(value any) any {
	fields, is := value.(map[string]any)
	if !is {
		return value
	}
	out := map[string]any{}
	for name, field := range fields {
		switch field := withoutZeros(field).(type) {
		case nil:
		case string, bool, int64, float64:
			if !reflect.ValueOf(field).IsZero() {
				out[name] = field
			}
		case map[string]any:
			if len(field) > 0 {
				out[name] = field
			}
		default:
			out[name] = field
		}
	}
	return out
}

// changes are the fields in which another one differs, with both values.
func (m madeFrom) changes(to madeFrom) (all []string) {
	if m.Version != to.Version {
		all = append(all, "version "+m.Version+" → "+to.Version)
	}
	if m.Template != to.Template {
		all = append(all, "template "+m.Template+" → "+to.Template)
	}
	if !jsonEqual(withoutZeros(m.Config), withoutZeros(to.Config)) {
		all = append(all, "the machine configuration")
	}
	return all
}

// madeFrom is what each Machine of the control plane was made from, by the Machine's name.
func (c *controlPlane) madeFrom(ctx context.Context, machines []unstructured.Unstructured) (map[string]madeFrom,
	error) {
	configs, err := c.named(ctx, capi.TalosConfigKind)
	if err != nil {
		return nil, err
	}
	servers, err := c.named(ctx, capi.HCloudMachineKind)
	if err != nil {
		return nil, err
	}
	out := map[string]madeFrom{}
	for _, m := range machines {
		from := madeFrom{Version: capi.Text(&m, "spec", "version")}
		if server, exists := servers[capi.ServerOf(&m)]; exists {
			from.Template = server.GetAnnotations()[capi.ClonedFromAnnotation]
		}
		if config, exists := configs[capi.Text(&m, configRef...)]; exists {
			from.Config = config.Object["spec"]
		}
		out[m.GetName()] = from
	}
	return out, nil
}

// named are the objects of a kind in the namespace, by their names.
func (c *controlPlane) named(ctx context.Context, kind schema.GroupVersionKind) (map[string]*unstructured.Unstructured,
	error) {
	list := capi.ListOf(kind)
	if err := c.manager.List(ctx, list, client.InNamespace(c.cfg.Namespace)); err != nil {
		return nil, fmt.Errorf("list the %ss: %w", kind.Kind, err)
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetName()] = &list.Items[i]
	}
	return out, nil
}
