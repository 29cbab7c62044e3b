package fromservers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Labels that Cluster API puts on MachineSets and their Machines.
const (
	setLabel          = "cluster.x-k8s.io/set-name"
	templateHashLabel = "machine-template-hash"
)

// addPools makes the objects of the configured worker pools that have servers. Those of workers that are of none are
// noted.
func (m *making) addPools() error {
	sets := map[string][]server{} // by MachineDeployment
	for _, one := range m.workers {
		name := one.deployment()
		sets[name] = append(sets[name], one)
	}
	for _, p := range m.cfg.Workers {
		p = m.cfg.Pool(p)
		groups := p.Groups()
		newest := server{}
		for _, g := range groups {
			for _, one := range sets[m.cfg.ClusterName+"-"+g.Name] {
				if one.ID > newest.ID {
					newest = one
				}
			}
		}
		if newest.ID == 0 {
			continue // the step workers creates it
		}
		objects, err := m.renderPool(p, newest)
		if err != nil {
			return fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		each := len(objects) / len(groups)
		for i, g := range groups {
			name := m.cfg.ClusterName + "-" + g.Name
			if err := m.addPool(objects[i*each:(i+1)*each], g, sets[name]); err != nil {
				return fmt.Errorf("worker pool %s: %w", p.Name, err)
			}
			delete(sets, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		m.note("the workers of MachineDeployment %s get no Machine: they are left as they are, and no cluster "+
			"manages them. %s, and make the backup again", name, m.configures(name))
	}
	return nil
}

// configures says what of the configuration makes a MachineDeployment that is of no configured pool.
func (m *making) configures(deployment string) string {
	name := strings.TrimPrefix(deployment, m.cfg.ClusterName+"-")
	for _, p := range m.cfg.Workers {
		if n, is := strings.CutPrefix(name, p.Name+"-"); is && n != "" && strings.Trim(n, "0123456789") == "" {
			return fmt.Sprintf("They are of pool %s, which has more servers than are configured: raise its "+
				"replicas, or its max, to their number", p.Name)
		}
	}
	return "Configure a pool " + name + " (workers in bootstrap.yaml)"
}

// deployment is the name of the MachineDeployment that a worker was made for: Cluster API calls a MachineSet as its
// MachineDeployment, with a suffix, and a Machine as its MachineSet, with another.
func (one server) deployment() string { return withoutSuffix(one.set()) }

// set is the name of its MachineSet.
func (one server) set() string {
	if one.node != nil && one.node.Annotations[capi.NodeOwnerAnnotation] != "" {
		return one.node.Annotations[capi.NodeOwnerAnnotation]
	}
	return withoutSuffix(one.Name)
}

func withoutSuffix(name string) string { return name[:max(0, strings.LastIndex(name, "-"))] }

// renderPool makes the objects of a pool as a server of it is.
func (m *making) renderPool(p config.WorkerPool, like server) ([]*unstructured.Unstructured, error) {
	m.note.overridesList(&p.ServerType, "the server type of worker pool "+p.Name, like.Type)
	m.note.overridesList(&p.Location, "the location of worker pool "+p.Name, like.Location)
	place := render.PoolPlacement{ServerType: like.Type, Location: like.Location,
		Image: like.image(m.cfg.SchematicImage(p.Schematic, m.architectures[like.Type]))}
	if p.Image != "" {
		m.note.overrides(&p.Image, "the image of worker pool "+p.Name, place.Image)
	}
	if like.config != nil {
		place.MetadataRoute = like.metadataRoute()
	}
	cfg := m.cfg
	cfg.Workers = config.WorkerPools{p}
	vars := maps.Clone(m.vars)
	vars[kubernetesVariable] = cmp.Or(like.kubernetes(), cfg.KubernetesVersion)
	return render.Workers(cfg, m.files, vars, map[string]render.PoolPlacement{p.Name: place})
}

// kubernetesVariable is the variable of the manifests with the version of Kubernetes.
const kubernetesVariable = "KUBERNETES_VERSION"

// pool are the objects of a part of a worker pool.
type pool struct {
	deployment, template, config *unstructured.Unstructured
}

func poolOf(objects []*unstructured.Unstructured) (p pool) {
	for _, o := range objects {
		switch o.GroupVersionKind() {
		case capi.MachineDeploymentKind:
			p.deployment = o
		case capi.MachineTemplateKind:
			p.template = o
		case capi.TalosConfigTemplateKind:
			p.config = o
		}
	}
	return p
}

// addPool makes the objects of a part of a pool, with a MachineSet and a Machine for each of its servers.
func (m *making) addPool(objects []*unstructured.Unstructured, g config.PoolGroup, servers []server) error {
	if len(servers) == 0 {
		return nil
	}
	p := poolOf(objects)
	if p.deployment == nil || p.template == nil || p.config == nil {
		return fmt.Errorf("%s has no MachineDeployment, HCloudMachineTemplate or TalosConfigTemplate",
			m.files.WorkerPool.Name)
	}
	if err := m.keepPoolConfig(p, g, servers); err != nil {
		return err
	}
	if has := int64(len(servers)); has != int64(g.Replicas) && g.Max == 0 {
		m.note("worker pool %s has %d servers in MachineDeployment %s and is to keep them; the configuration has %d",
			g.Pool, has, p.deployment.GetName(), g.Replicas)
	}
	for _, o := range objects {
		o.SetUID(newUID())
		own(o, m.cluster, false)
	}
	set, labels, err := m.machineSet(p, servers)
	if err != nil {
		return err
	}
	for _, o := range append(objects, set) {
		m.made.Objects = append(m.made.Objects, *o)
	}
	spec, _, err := unstructured.NestedMap(p.config.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	of := machineSpec{owner: set, labels: labels, template: p.template, config: spec, from: p.config,
		version: capi.Text(p.deployment, "spec", "template", "spec", "version")}
	for _, one := range servers {
		m.addMachine(one, of)
	}
	return nil
}

// keepPoolConfig has a pool's TalosConfigTemplate make servers as those that exist. Its name is its content's.
func (m *making) keepPoolConfig(p pool, g config.PoolGroup, servers []server) error {
	o := configured{object: p.config, spec: []string{"spec", "template", "spec"}, name: "worker pool " + g.Name,
		cfg: m.cfg}
	if err := m.keepMachineConfig(o, servers); err != nil {
		return err
	}
	name, err := render.NameByContent(p.deployment.GetName(), p.config)
	if err != nil {
		return err
	}
	p.config.SetName(name)
	return unstructured.SetNestedField(p.deployment.Object, name, "spec", "template", "spec", "bootstrap", "configRef",
		"name")
}

// machineSet is the MachineSet of a pool's servers, and the labels of its Machines. A MachineDeployment takes one whose
// template is its own for its newest.
func (m *making) machineSet(p pool, servers []server) (*unstructured.Unstructured, map[string]string, error) {
	d := p.deployment
	selector := map[string]string{capi.ClusterNameLabel: m.cfg.ClusterName, capi.DeploymentLabel: d.GetName()}
	labels, _, err := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil, nil, err
	}
	labels = with(labels, selector)
	replicas := int64(len(servers))
	for path, value := range map[string]any{"selector": map[string]any{"matchLabels": anyMap(selector)},
		"replicas": replicas} {
		if err := unstructured.SetNestedField(d.Object, value, "spec", path); err != nil {
			return nil, nil, err
		}
	}
	if err := unstructured.SetNestedStringMap(d.Object, labels, "spec", "template", "metadata", "labels"); err != nil {
		return nil, nil, err
	}
	name := servers[len(servers)-1].set()
	hash := map[string]string{templateHashLabel: name[strings.LastIndex(name, "-")+1:]}
	labels = with(labels, hash)
	set := m.object(machineSetKind, name)
	set.SetLabels(labels)
	set.SetAnnotations(map[string]string{revisionAnnotation: "1"})
	own(set, d, true)
	template, _, err := unstructured.NestedMap(d.Object, "spec", "template")
	if err != nil {
		return nil, nil, err
	}
	template["metadata"] = map[string]any{"labels": anyMap(labels)}
	set.Object["spec"] = map[string]any{"clusterName": m.cfg.ClusterName, "replicas": replicas, "template": template,
		"selector": map[string]any{"matchLabels": anyMap(with(selector, hash))}}
	return set, with(labels, map[string]string{setLabel: name}), nil
}

// revisionAnnotation counts the MachineSets of a MachineDeployment.
const revisionAnnotation = "machinedeployment.clusters.x-k8s.io/revision"

var machineSetKind = capi.MachineDeploymentKind.GroupVersion().WithKind("MachineSet")

func with(labels, more map[string]string) map[string]string {
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	return all
}

func anyMap(labels map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range labels {
		all[key] = value
	}
	return all
}
