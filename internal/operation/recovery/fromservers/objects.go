package fromservers

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/kubeconfig"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
)

// making are objects in the making.
type making struct {
	*survey
	cfg      config.Config
	note     note
	files    render.Sources
	vars     render.Variables
	made     backup.Made
	cluster  *unstructured.Unstructured
	tcp      *unstructured.Unstructured
	template *unstructured.Unstructured // of the control plane's servers
}

// objects are the manifests' objects, with a Machine for each control plane server, and the Secrets that no controller
// creates again with what the cluster has in them.
func (s *survey) objects(cfg config.Config, note note) (backup.Made, error) {
	m := &making{survey: s, cfg: cfg, note: note, made: backup.Made{Talos: s.talos}}
	if err := m.render(); err != nil {
		return m.made, err
	}
	plane := configured{object: m.tcp, spec: controlPlaneSpec, name: "the control plane", cfg: cfg}
	if err := m.keepMachineConfig(plane, s.servers); err != nil {
		return m.made, err
	}
	labels := map[string]string{capi.ClusterNameLabel: m.cfg.ClusterName, capi.ControlPlaneLabel: ""}
	spec, _, _ := unstructured.NestedMap(m.tcp.Object, controlPlaneSpec...)
	for _, one := range s.servers {
		m.addMachine(one, machineSpec{owner: m.tcp, labels: labels, template: m.template, config: spec,
			version: cfg.KubernetesVersion})
		if one.config != nil {
			m.made.Members = append(m.made.Members, backup.EtcdSource{Name: one.Name, Route: one.route})
		}
	}
	if err := m.addPools(); err != nil {
		return m.made, err
	}
	return m.made, m.addSecrets()
}

// controlPlaneSpec is where a TalosControlPlane has the TalosConfigSpec of its servers.
var controlPlaneSpec = []string{"spec", "controlPlaneConfig", "controlplane"}

// render makes the objects of the manifests. The template is called as the newest server's name begins, so that a later
// run, for which a template of the same content keeps its name, makes no other.
func (m *making) render() error {
	sources, err := m.sources(m.cfg)
	if err != nil {
		return err
	}
	v := m.variables(m.cfg, sources)
	m.files, m.vars = sources, v
	r, err := render.Manifests(m.cfg, sources, v)
	if err != nil {
		return err
	}
	for _, o := range r.Now {
		if o.GroupVersionKind() == capi.MachineTemplateKind && o.GetName() == r.Template {
			m.vars = v.Placed(render.Placement{Template: withoutSuffix(m.newest().Name),
				TemplateHash: render.PlacementOf(nil, nil, o).TemplateHash})
		}
	}
	if r, err = render.Manifests(m.cfg, sources, m.vars); err != nil {
		return err
	}
	for _, o := range r.Now {
		o.SetUID(newUID())
		switch kind, name := o.GroupVersionKind(), o.GetName(); {
		case kind == capi.ClusterKind && name == m.cfg.ClusterName:
			m.cluster = o
		case kind == capi.TalosControlPlaneKind && name == m.cfg.ControlPlaneName():
			m.tcp = o
		case kind == capi.MachineTemplateKind && name == r.Template:
			m.template = o
		}
	}
	for what, o := range map[string]*unstructured.Unstructured{"Cluster " + m.cfg.ClusterName: m.cluster,
		"TalosControlPlane " + m.cfg.ControlPlaneName(): m.tcp, "HCloudMachineTemplate for its servers": m.template} {
		if o == nil {
			return fmt.Errorf("%s has no %s", sources.Cluster.Name, what)
		}
	}
	for _, o := range r.Now {
		if o != m.cluster {
			own(o, m.cluster, false)
			label(o, capi.ClusterNameLabel, m.cfg.ClusterName)
		}
		switch {
		case o == m.tcp:
			o.Object["status"] = bootstrapped()
		case o.GroupVersionKind() == capi.HetznerClusterKind:
			if err := m.completeCluster(o); err != nil {
				return err
			}
		}
		m.made.Objects = append(m.made.Objects, *o)
	}
	return nil
}

// completeCluster writes what the controllers have found out, the endpoint and the load balancer's address, and what
// the load balancer has besides: CAPH deletes the services that it does not know.
func (m *making) completeCluster(infrastructure *unstructured.Unstructured) error {
	endpoint, _, err := unstructured.NestedMap(infrastructure.Object, "spec", "controlPlaneEndpoint")
	if err != nil {
		return err
	}
	port := cmp.Or(m.newest().config.Cluster().Endpoint().Port(), "443")
	if is := fmt.Sprint(endpoint["port"]); is != port {
		return usage.Errorf("the servers address the Kubernetes API at port %s, and %s has %s: write that port into "+
			"controlPlaneEndpoint and controlPlaneLoadBalancer of the manifest", port, m.files.Cluster.Name, is)
	}
	if err := unstructured.SetNestedMap(m.cluster.Object, endpoint, "spec", "controlPlaneEndpoint"); err != nil {
		return err
	}
	if err := m.keepServices(infrastructure, port); err != nil || m.address() == "" {
		return err
	}
	return unstructured.SetNestedField(infrastructure.Object, m.address(), "status", "controlPlaneLoadBalancer", "ipv4")
}

// keepServices adds the services of the load balancer that the manifest does not have.
func (m *making) keepServices(infrastructure *unstructured.Unstructured, api string) error {
	if m.balancer == nil {
		return nil
	}
	path := []string{"spec", "controlPlaneLoadBalancer", "extraServices"}
	all, _, err := unstructured.NestedSlice(infrastructure.Object, path...)
	if err != nil {
		return err
	}
	known, has := []string{api}, len(all)
	for _, one := range all {
		service, _ := one.(map[string]any)
		known = append(known, fmt.Sprint(service["listenPort"]))
	}
	for _, s := range m.balancer.Services {
		if slices.Contains(known, fmt.Sprint(s.ListenPort)) {
			continue
		}
		m.note("load balancer %s listens on port %d (%s, to port %d), which the manifest does not say: it is kept; "+
			"write it into extraServices of %s", m.balancer.Name, s.ListenPort, s.Protocol, s.DestinationPort,
			m.files.Cluster.Name)
		all = append(all, map[string]any{"protocol": s.Protocol, "listenPort": int64(s.ListenPort),
			"destinationPort": int64(s.DestinationPort)})
	}
	if len(all) == has {
		return nil
	}
	return unstructured.SetNestedSlice(infrastructure.Object, all, path...)
}

// bootstrapped is what the control plane provider says once it has bootstrapped etcd.
func bootstrapped() map[string]any {
	return map[string]any{"bootstrapped": true,
		"conditions": []any{map[string]any{"type": recovery.BootstrappedCondition,
			"status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
}

// machineSpec is what the Machines of one owner have in common.
type machineSpec struct {
	owner    *unstructured.Unstructured // the TalosControlPlane, or a MachineSet
	labels   map[string]string
	template *unstructured.Unstructured // HCloudMachineTemplate
	config   map[string]any             // TalosConfigSpec
	from     *unstructured.Unstructured // TalosConfigTemplate; nil: the TalosControlPlane has the TalosConfigSpec
	version  string                     // of Kubernetes
}

// addMachine makes the objects that Cluster API has for a server. They name today's template and configuration, so that
// the server is not replaced.
func (m *making) addMachine(s server, of machineSpec) {
	name := s.Name
	if s.node != nil {
		name = cmp.Or(s.node.Annotations[capi.NodeMachineAnnotation], name)
	}
	machine := m.object(capi.MachineKind, name)
	machine.SetLabels(of.labels)
	own(machine, of.owner, true)

	configuration := m.object(capi.TalosConfigKind, name)
	configuration.Object["spec"] = of.config
	own(configuration, machine, true)
	infrastructure := m.object(capi.HCloudMachineKind, s.Name)
	infrastructure.SetLabels(of.labels)
	clonedFrom(infrastructure, of.template)
	spec, _, _ := unstructured.NestedMap(of.template.Object, "spec", "template", "spec")
	spec["providerID"], spec["type"] = s.ProviderID(), s.Type
	infrastructure.Object["spec"] = spec
	own(infrastructure, machine, true)
	if of.from == nil {
		own(configuration, of.owner, false)
		own(infrastructure, of.owner, false)
	} else {
		configuration.SetLabels(of.labels)
		clonedFrom(configuration, of.from)
	}

	data := name + bootstrapDataSuffix
	machine.Object["spec"] = map[string]any{
		"clusterName": m.cfg.ClusterName, "version": of.version, "failureDomain": s.Location,
		"providerID": s.ProviderID(), "infrastructureRef": refer(infrastructure),
		"bootstrap": map[string]any{"configRef": refer(configuration), "dataSecretName": data},
	}
	m.made.Objects = append(m.made.Objects, *machine, *configuration, *infrastructure)
	if s.config == nil {
		return
	}
	if text, err := s.config.Bytes(); err == nil {
		m.addSecret(data, configuration, map[string][]byte{capi.BootstrapDataKey: text})
	}
}

// clonedFrom names the template that an object was made from, as Cluster API does.
func clonedFrom(o, template *unstructured.Unstructured) {
	o.SetAnnotations(map[string]string{capi.ClonedFromAnnotation: template.GetName(),
		capi.ClonedFromKindAnnotation: template.GroupVersionKind().GroupKind().String()})
}

// bootstrapDataSuffix ends the name of the Secret with the machine configuration of a Machine (CABPT v0.6,
// controllers/secrets.go, writeBootstrapData).
const bootstrapDataSuffix = "-bootstrap-data"

// addSecrets makes the Secrets that CABPT creates for a cluster (v0.6, controllers/secrets.go) with the cluster's own
// keys in them.
func (m *making) addSecrets() error {
	bundle, err := yaml.Marshal(m.bundle)
	if err != nil {
		return fmt.Errorf("write the keys of the cluster: %w", err)
	}
	authority := m.bundle.Certs.K8s
	if !whole(authority) || !whole(m.bundle.Certs.Etcd) || !whole(m.bundle.Certs.OS) {
		return fmt.Errorf("the machine configuration of server %s does not have all authorities of the cluster, with "+
			"their keys", m.newest().Name)
	}
	name := m.cfg.ClusterName
	m.addSecret(name+backup.TalosSecretSuffix, m.cluster, map[string][]byte{"bundle": bundle})
	m.addSecret(name+"-ca", m.cluster, map[string][]byte{"tls.crt": authority.Crt, "tls.key": authority.Key})
	m.addSecret(name+"-talosconfig", m.cluster, map[string][]byte{"talosconfig": m.talosconfig})
	access, err := m.kubeconfig(authority)
	if err != nil {
		return fmt.Errorf("make the kubeconfig of the controllers: %w", err)
	}
	m.addSecret(name+"-kubeconfig", m.tcp, map[string][]byte{"value": access})
	return nil
}

// kubeconfig is the one that CACPPT makes where there is none. Cluster API, which looks for it before that, looks again
// only after half a minute.
func (m *making) kubeconfig(authority *x509.PEMEncodedCertificateAndKey) ([]byte, error) {
	certificate, err := certs.DecodeCertPEM(authority.Crt)
	if err != nil {
		return nil, err
	}
	key, err := certs.DecodePrivateKeyPEM(authority.Key)
	if err != nil { // not the error itself, which may quote the key
		return nil, errors.New("the key of the Kubernetes API's authority cannot be read")
	}
	server := m.newest().config.Cluster().Endpoint().String()
	made, err := kubeconfig.New(m.cfg.ClusterName, server, certificate, key)
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*made)
}

func whole(pair *x509.PEMEncodedCertificateAndKey) bool {
	return pair != nil && len(pair.Crt) > 0 && len(pair.Key) > 0
}

func (m *making) addSecret(name string, owner *unstructured.Unstructured, data map[string][]byte) {
	o := m.object(corev1.SchemeGroupVersion.WithKind("Secret"), name)
	label(o, capi.ClusterNameLabel, m.cfg.ClusterName)
	own(o, owner, true)
	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	o.Object["data"], o.Object["type"] = encoded, "Opaque"
	m.made.Secrets = append(m.made.Secrets, *o)
}

func (m *making) object(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(m.cfg.Namespace)
	o.SetName(name)
	o.SetUID(newUID())
	return o
}

// own makes an object one of another's.
func own(o, owner *unstructured.Unstructured, controls bool) {
	r := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(),
		UID: owner.GetUID()}
	if controls {
		r = *metav1.NewControllerRef(owner, owner.GroupVersionKind())
	}
	o.SetOwnerReferences(append(o.GetOwnerReferences(), r))
}

func refer(o *unstructured.Unstructured) map[string]any {
	return map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName(),
		"namespace": o.GetNamespace()}
}

func label(o *unstructured.Unstructured, name, value string) {
	o.SetLabels(with(o.GetLabels(), map[string]string{name: value}))
}

// newUID identifies an object among those of the backup: an API server gives it another one.
func newUID() types.UID { return uuid.NewUUID() }
