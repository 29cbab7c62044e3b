package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Cluster is what a cluster is restored from. Whoever made it has read the whole file, so that every sum in it is
// checked.
type Cluster struct {
	Contents *Contents
	// Snapshot is the path of the etcd snapshot, as a file, which is whole as soon as it has its name. It contains all
	// data of the cluster's etcd, but for what SilenceSnapshot took out of it.
	Snapshot string
	// Copies tells that a copy of the cluster is made, in an environment of its own: the cluster itself may live, and is
	// not asked for anything.
	Copies bool
}

// ClusterIdentity tells one backup from all others, without any of its secrets.
type ClusterIdentity struct {
	Cluster  string `json:"cluster"`
	UID      string `json:"uid"`      // of its namespace kube-system
	Snapshot string `json:"snapshot"` // SHA-256 of the etcd snapshot
}

// Namespace is the one that the cluster's objects were in: that of its Cluster object.
func (s Cluster) Namespace() string {
	for i := range s.Contents.Objects {
		if o := &s.Contents.Objects[i]; o.GroupVersionKind().GroupKind() == capi.ClusterKind.GroupKind() &&
			o.GetName() == s.Contents.Header.Cluster {
			return o.GetNamespace()
		}
	}
	return config.DefaultNamespace
}

// Identity tells the backup from all others.
func (s Cluster) Identity() ClusterIdentity {
	h := s.Contents.Header
	return ClusterIdentity{Cluster: h.Cluster, UID: h.UID, Snapshot: s.Contents.Snapshot.SHA256}
}

// Open opens the snapshot.
func (s Cluster) Open() (io.ReadCloser, int64, error) {
	file, err := os.Open(s.Snapshot)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// Object finds an object of the backup by kind and name; nil: it has none.
func (s Cluster) Object(kind, name string) *unstructured.Unstructured {
	namespace := s.Namespace()
	i := slices.IndexFunc(s.Contents.Objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == name && o.GetNamespace() == namespace
	})
	if i < 0 {
		return nil
	}
	return &s.Contents.Objects[i]
}

// Secret finds a Secret of the backup; nil: it has none.
func (s Cluster) Secret(name string) *unstructured.Unstructured {
	namespace := s.Namespace()
	i := slices.IndexFunc(s.Contents.Secrets, func(o unstructured.Unstructured) bool {
		return o.GetName() == name && o.GetNamespace() == namespace
	})
	if i < 0 {
		return nil
	}
	return &s.Contents.Secrets[i]
}

// Configure takes over what the backup knows better than a configuration, and refuses a backup that cannot be restored
// with it. It makes no request.
func (s Cluster) Configure(cfg config.Config) (config.Config, error) {
	h := s.Contents.Header
	if h.Cluster != cfg.ClusterName {
		return cfg, fmt.Errorf("the backup is of cluster %s, not of %s: CLUSTER_NAME=%s, or another file", h.Cluster,
			cfg.ClusterName, h.Cluster)
	}
	if namespace := s.Namespace(); namespace != cfg.Namespace {
		return cfg, fmt.Errorf("the backup has the Cluster API objects of cluster %s in namespace %s, not in %s, and a cluster "+
			"keeps its namespace: set NAMESPACE=%s", h.Cluster, namespace, cfg.Namespace, namespace)
	}
	var missing []string
	need := func(kind, name string) *unstructured.Unstructured {
		o := s.Object(kind, name)
		if o == nil {
			missing = append(missing, kind+" "+name)
			return &unstructured.Unstructured{Object: map[string]any{}}
		}
		return o
	}
	need(capi.ClusterKind.Kind, cfg.ClusterName)
	infrastructure := need(capi.HetznerClusterKind.Kind, cfg.ClusterName)
	tcp := need(capi.TalosControlPlaneKind.Kind, cfg.ControlPlaneName())
	template := need(capi.MachineTemplateKind.Kind, capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	if s.Secret(cfg.ClusterName+TalosSecretSuffix) == nil {
		missing = append(missing, "Secret "+cfg.ClusterName+TalosSecretSuffix+", without which nothing in etcd can be read")
	}
	if h.UID == "" || s.Contents.Snapshot.SHA256 == "" {
		missing = append(missing, "the identity of its etcd snapshot")
	}
	if len(missing) > 0 {
		return cfg, fmt.Errorf("the backup cannot be restored, it lacks %s", strings.Join(missing, "; "))
	}
	regions, _, _ := unstructured.NestedStringSlice(infrastructure.Object, "spec", "controlPlaneRegions")
	for _, v := range []struct {
		to   *string
		from string
	}{
		{&cfg.ServerType, serverTypes(capi.Text(template, "spec", "template", "spec", "type"), cfg.ServerTypes())},
		{&cfg.ImageName, capi.Text(template, "spec", "template", "spec", "imageName")},
		{&cfg.LoadBalancerType, capi.Text(infrastructure, "spec", "controlPlaneLoadBalancer", "type")},
		{&cfg.Location, capi.Text(infrastructure, "spec", "controlPlaneLoadBalancer", "region")},
		{&cfg.NetworkCIDR, capi.Text(infrastructure, "spec", "hcloudNetwork", "cidrBlock")},
		{&cfg.KubernetesVersion, capi.Text(tcp, "spec", "version")},
		{&cfg.TalosVersion, capi.Text(tcp, "spec", "controlPlaneConfig", "controlplane", "talosVersion")},
	} {
		if v.from != "" {
			*v.to = v.from
		}
	}
	s.keepLine(&cfg)
	cfg.Spread = config.SpreadHost // the servers' locations are in the objects, the configuration's is the load balancer's
	// A cluster keeps the kind of its endpoint. A host name is in the objects, and stands for an address already.
	cfg.ControlPlaneEndpoint = config.EndpointLoadBalancer
	if s.KeepsAddress() {
		cfg.ControlPlaneEndpoint = config.EndpointPrimaryIP
	}
	if len(regions) > 0 && cfg.Location == "" {
		cfg.Location = regions[0]
	}
	cfg.ControlPlaneReplicas = int(capi.Number(tcp, "spec", "replicas"))
	return cfg, nil
}

// keepLine configures the providers of the backup where its core keeps another contract than the configured one: the
// cluster's own etcd has objects that a core of the older contract does not know.
func (s Cluster) keepLine(cfg *config.Config) {
	had := s.Contents.Header.Versions
	core := capi.ContractOfCore(had["CAPI_VERSION"])
	if core == "" || core == capi.ContractOfCore(cfg.CAPIVersion) {
		return
	}
	for variable, to := range map[string]*string{"CAPI_VERSION": &cfg.CAPIVersion, "CABPT_VERSION": &cfg.CABPTVersion,
		"CACPPT_VERSION": &cfg.CACPPTVersion, "CAPH_VERSION": &cfg.CAPHVersion} {
		*to = cmp.Or(had[variable], *to)
	}
}

// serverTypes are what a cluster is restored with: the server type that it had, and where several are configured those
// of the same architecture after it, for when Hetzner has no more of the first. The image has one architecture.
func serverTypes(had string, configured []string) string {
	all := []string{had}
	if len(configured) < 2 || had == "" {
		return had
	}
	for _, one := range configured {
		if one != had && strings.HasPrefix(one, arm64Prefix) == strings.HasPrefix(had, arm64Prefix) {
			all = append(all, one)
		}
	}
	return strings.Join(all, ",")
}

// arm64Prefix begins the names of Hetzner's server types for arm64, and of no others.
const arm64Prefix = "cax"

// Endpoint is the address that the cluster had, and the host that its own objects name, which may be a name in DNS.
func (s Cluster) Endpoint() (ip, host string) {
	o := s.Object(capi.HetznerClusterKind.Kind, s.Contents.Header.Cluster)
	return capi.Text(o, "status", "controlPlaneLoadBalancer", "ipv4"), capi.Text(o, "spec", "controlPlaneEndpoint", "host")
}

// KeepsAddress reports whether the cluster had its address by a Primary IP, which outlives its load balancer.
func (s Cluster) KeepsAddress() bool {
	o := s.Object(capi.HetznerClusterKind.Kind, s.Contents.Header.Cluster)
	return o != nil && capi.Text(o, "spec", "controlPlaneLoadBalancer", "name") == hetzner.EndpointName(o.GetName())
}

// Elsewhere is the backup as it is restored in an environment with other address ranges than its cluster had, as in a
// lab: those of the configuration replace its own in every object. What is in etcd keeps the old ones.
func (s Cluster) Elsewhere(cfg config.Config) Cluster {
	name := s.Contents.Header.Cluster
	infrastructure, cluster := s.Object(capi.HetznerClusterKind.Kind, name), s.Object(capi.ClusterKind.Kind, name)
	if infrastructure == nil || cluster == nil {
		return s // configure says so
	}
	first := func(fields ...string) string {
		blocks, _, _ := unstructured.NestedStringSlice(cluster.Object, fields...)
		return strings.Join(blocks[:min(1, len(blocks))], "")
	}
	ranges := []struct{ was, is string }{
		{capi.Text(infrastructure, "spec", "hcloudNetwork", "subnetCidrBlock"), cfg.ControlPlaneCIDR},
		{first("spec", "clusterNetwork", "services", "cidrBlocks"), cfg.ServiceCIDR},
		{first("spec", "clusterNetwork", "pods", "cidrBlocks"), cfg.PodCIDR},
		{capi.Text(infrastructure, "spec", "hcloudNetwork", "cidrBlock"), cfg.NetworkCIDR},
	}
	there := *s.Contents
	there.Objects = nil
	for i := range s.Contents.Objects {
		o := s.Contents.Objects[i].DeepCopy()
		for _, r := range ranges {
			if r.was != "" && r.was != r.is {
				o.Object = ReplaceText(o.Object, r.was, r.is).(map[string]any)
			}
		}
		there.Objects = append(there.Objects, *o)
	}
	s.Contents = &there
	return s
}

// TalosSecretSuffix ends the name of the Secret with every authority, token and key of a cluster. CABPT takes it where
// it is there, and makes all other Secrets of it again.
const TalosSecretSuffix = "-talos"
