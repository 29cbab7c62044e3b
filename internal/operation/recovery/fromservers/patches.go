package fromservers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/machineconfig"
)

// neverPatched are fields that no patch may give to every server: what tells servers apart, versions, which the objects
// have in fields of their own, and keys, which the bootstrap provider writes.
func neverPatched() []string {
	return []string{"machine.type", "machine.token", "machine.ca", "machine.network.hostname", "machine.kubelet.image",
		"cluster.id", "cluster.secret", "cluster.token", "cluster.ca", "cluster.aggregatorCA", "cluster.serviceAccount",
		"cluster.etcd.ca", "cluster.aescbcEncryptionSecret", "cluster.secretboxEncryptionSecret",
		"cluster.controlPlane.endpoint", "cluster.apiServer.image", "cluster.controllerManager.image",
		"cluster.scheduler.image", "cluster.proxy.image"}
}

// configured is an object that servers are configured by.
type configured struct {
	object *unstructured.Unstructured
	spec   []string // where its TalosConfigSpec is
	name   string   // of the control plane or the worker pool
	cfg    config.Config
}

// keepMachineConfig has an object make servers that are configured as the newest one is: what the manifests do not
// give it, and all servers have, becomes a patch. What does not, and in what the others differ, is noted.
func (m *making) keepMachineConfig(o configured, servers []server) error {
	one := newestOf(servers)
	if one.config == nil {
		m.note("no server of %s answered: whether they are configured as the manifests say is not known", o.name)
		return nil
	}
	var apart []machineconfig.Field
	for _, other := range servers {
		if other.config == nil {
			m.note("server %s did not answer: whether it is configured as the others is not known: %v", other.Name,
				other.err)
			continue
		}
		fields, err := machineconfig.Differences(one.config, other.config)
		if err != nil {
			return err
		}
		if len(fields) > 0 {
			m.note("server %s differs from %s in %s", other.Name, one.Name, names(fields))
		}
		apart = append(apart, fields...)
	}
	patched, left, err := m.patch(o, one, apart)
	if err != nil {
		return err
	}
	if len(patched) > 0 {
		m.note("the servers of %s have what the manifests do not say, which becomes a patch: %s", o.name,
			names(patched))
	}
	if len(left) > 0 {
		m.note("a server of %s that is created later differs from the newest, %s, in %s", o.name, one.Name, names(left))
	}
	return nil
}

// patch adds patches with the fields that a server has and a new one would not get. left are those that do not become a
// patch: those of neverPatched, those in which servers differ, and what Talos does not take.
func (m *making) patch(o configured, like server, apart []machineconfig.Field) (patched, left []machineconfig.Field,
	err error) {
	differ, err := m.differences(o, like)
	if err != nil || len(differ) == 0 {
		return nil, nil, err
	}
	wanted := slices.DeleteFunc(slices.Clone(differ), func(f machineconfig.Field) bool {
		return slices.ContainsFunc(neverPatched(), f.Within) || has(apart, f)
	})
	path := append(slices.Clone(o.spec), "strategicPatches")
	before, _, err := unstructured.NestedStringSlice(o.object.Object, path...)
	if err != nil {
		return nil, nil, err
	}
	// try adds the patches, and takes them away again where new servers would differ in one of the fields still.
	try := func(fields ...machineconfig.Field) bool {
		texts, err := machineconfig.Patches(fields)
		if err != nil || len(fields) == 0 {
			return false
		}
		after := append(slices.Clone(before), texts...)
		if err := unstructured.SetNestedStringSlice(o.object.Object, after, path...); err != nil {
			return false
		}
		is, err := m.differences(o, like)
		if err == nil && !slices.ContainsFunc(fields, func(f machineconfig.Field) bool { return has(is, f) }) {
			before, patched = after, append(patched, fields...)
			return true
		}
		_ = unstructured.SetNestedStringSlice(o.object.Object, before, path...)
		return false
	}
	if !try(wanted...) {
		for _, f := range wanted {
			try(f)
		}
	}
	left, err = m.differences(o, like)
	return patched, left, err
}

// has tells whether a field is among others.
func has(fields []machineconfig.Field, f machineconfig.Field) bool {
	return slices.ContainsFunc(fields, func(other machineconfig.Field) bool { return other.String() == f.String() })
}

// differences are the fields in which a server's machine configuration is another than that of a new one with the same
// version of Kubernetes.
func (m *making) differences(o configured, like server) ([]machineconfig.Field, error) {
	cfg := o.cfg
	cfg.KubernetesVersion = cmp.Or(like.kubernetes(), cfg.KubernetesVersion)
	is, err := checks.MachineConfigOf(cfg, o.object, checks.Identity{Secrets: m.bundle,
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
