package fromservers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/machineconfig"
)

// configured is an object that servers are configured by.
type configured struct {
	object *unstructured.Unstructured
	spec   []string      // where its TalosConfigSpec is
	cfg    config.Config // with the servers' version of Kubernetes
}

// keepMachineConfig has an object make servers that are configured as the newest one is: what the manifests do not
// give it becomes a patch. What no patch gives a new server, and in what the others differ, is noted.
func (m *making) keepMachineConfig(o configured, servers []server, note func(string, ...any)) error {
	one := newestOf(servers)
	if one.config == nil {
		note("no server of %s %s answered: whether they are configured as the manifests say is not known",
			o.object.GetKind(), o.object.GetName())
		return nil
	}
	patched, left, err := m.patch(o, one)
	if err != nil {
		return err
	}
	if len(patched) > 0 {
		note("the servers have what the manifests do not say, which becomes a patch of %s %s: %s", o.object.GetKind(),
			o.object.GetName(), names(patched))
	}
	if len(left) > 0 {
		note("a server of %s %s that is created later differs from the existing ones in %s", o.object.GetKind(),
			o.object.GetName(), names(left))
	}
	for _, other := range servers {
		if other.config == nil {
			note("server %s did not answer: whether it is configured as the others is not known: %v", other.Name, other.err)
			continue
		}
		fields, err := machineconfig.Differences(one.config, other.config)
		if err != nil {
			return err
		}
		if len(fields) > 0 {
			note("server %s differs from %s in %s", other.Name, one.Name, names(fields))
		}
	}
	return nil
}

// patch adds patches with the fields that a server has and a new one would not get. left are those that no patch gives
// a new one.
func (m *making) patch(o configured, like server) (patched, left []machineconfig.Field, err error) {
	differ, err := m.differences(o, like)
	if err != nil || len(differ) == 0 {
		return nil, nil, err
	}
	path := append(slices.Clone(o.spec), "strategicPatches")
	before, _, err := unstructured.NestedStringSlice(o.object.Object, path...)
	if err != nil {
		return nil, nil, err
	}
	added, err := machineconfig.Patches(differ)
	if err != nil {
		return nil, nil, err
	}
	set := func(patches []string) error {
		return unstructured.SetNestedStringSlice(o.object.Object, patches, path...)
	}
	if err := set(append(slices.Clone(before), added...)); err != nil {
		return nil, nil, err
	}
	left, err = m.differences(o, like)
	if err != nil || len(left) >= len(differ) { // Talos does not take it, or it is of no use
		return nil, differ, set(before)
	}
	return differ, left, nil
}

// differences are the fields in which a server's machine configuration is another than a new one's.
func (m *making) differences(o configured, like server) ([]machineconfig.Field, error) {
	is, err := checks.MachineConfigOf(o.cfg, o.object, checks.Identity{Secrets: m.bundle,
		Endpoint: m.newest().config.Cluster().Endpoint().String()})
	if err != nil {
		return nil, err
	}
	fields, err := machineconfig.Differences(is, like.config)
	if err != nil {
		return nil, fmt.Errorf("compare the machine configuration of server %s with a new server's: %w", like.Name, err)
	}
	return fields, nil
}

func names(fields []machineconfig.Field) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.String()
	}
	return strings.Join(all, ", ")
}
