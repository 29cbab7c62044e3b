package talos

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"text/template"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

// manifestPause is the time before a manifest that was not applied is tried again.
const manifestPause = time.Second

// manifestResources maps the kinds in the manifests to resources of the API.
var manifestResources = map[string]schema.GroupVersionResource{
	"ServiceAccount":           {Version: "v1", Resource: "serviceaccounts"},
	"ConfigMap":                {Version: "v1", Resource: "configmaps"},
	"Service":                  {Version: "v1", Resource: "services"},
	"Deployment":               {Group: "apps", Version: "v1", Resource: "deployments"},
	"DaemonSet":                {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"ClusterRole":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// manifests renders what Talos itself puts into a new cluster: DNS, and CNI and kube-proxy where the configuration does
// not decline them, and the kind ServiceAccount of talos.dev.
func (c machineConfig) manifests() ([]*unstructured.Unstructured, error) {
	cluster := c.Cluster()
	values := map[string]string{
		"Domain": cluster.Network().DNSDomain(), "PodCIDR": commaJoined(cluster.Network().PodCIDRs()),
		"CoreDNSImage": cluster.CoreDNS().Image(), "ProxyImage": cluster.Proxy().Image(), "ProxyMode": cluster.Proxy().Mode(),
	}
	var files []string
	if c.Machine().Features().KubernetesTalosAPIAccess().Enabled() {
		files = append(files, "talos-serviceaccounts.yaml")
	}
	if cluster.Network().CNI().Name() == "flannel" {
		files = append(files, "flannel.yaml")
	}
	if cluster.Proxy().Enabled() {
		files = append(files, "kube-proxy.yaml")
	}
	if cluster.CoreDNS().Enabled() {
		ips, err := cluster.Network().DNSServiceIPs()
		if err != nil || len(ips) == 0 {
			return nil, fmt.Errorf("cluster.network.serviceSubnets: no address for DNS: %w", err)
		}
		values["DNSServiceIP"] = ips[0].String()
		files = append(files, "coredns.yaml")
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		rendered, err := render(file, values)
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", file, err)
		}
		objects = append(objects, rendered...)
	}
	return objects, nil
}

func render(file string, values map[string]string) ([]*unstructured.Unstructured, error) {
	t, err := template.New(file).Option("missingkey=error").ParseFS(manifestFiles, "manifests/"+file)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, values); err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(&text, 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// applyManifests creates those objects that do not exist, each until it exists or ctx is done. Objects that exist
// belong to the cluster's administrator.
func (y *system) applyManifests(ctx context.Context, config *rest.Config) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		y.note("manifests", err.Error())
		return
	}
	objects, err := y.config.manifests()
	if err != nil {
		y.note("manifests", err.Error())
		return
	}
	for _, o := range objects {
		for {
			err := createOnce(ctx, client.Resource(manifestResources[o.GetKind()]).Namespace(o.GetNamespace()), o)
			if err == nil {
				break
			}
			y.note("manifests", fmt.Sprintf("create %s %s: %v", o.GetKind(), o.GetName(), err))
			if !sleep(ctx, manifestPause) {
				return
			}
		}
	}
	y.note("manifests", "")
}

// createOnce creates an object that does not exist. It looks first: a Service that exists, with an address of its own,
// is refused for that address, which is taken.
func createOnce(ctx context.Context, client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	_, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
