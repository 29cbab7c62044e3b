package judge

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// clusterResource is the kind whose spec.paused holds the managers.
const clusterResource = "clusters.cluster.x-k8s.io"

// readCluster reads every object of a cluster of the kinds that are compared.
func readCluster(ctx context.Context, kubeconfig []byte, name string) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerWithin)
	defer cancel()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	config.UserAgent, config.QPS, config.Burst = agent, 100, 200
	config.Timeout = answerWithin
	kinds, err := comparedKinds(discovery.NewDiscoveryClientForConfigOrDie(config))
	if err != nil {
		return Cluster{}, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return Cluster{}, err
	}
	var c Cluster
	for _, kind := range kinds {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return Cluster{}, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for _, o := range list.Items {
			c.Objects = append(c.Objects, o.Object)
		}
	}
	c.Identity, err = identify(c.Objects, name, config.CAData)
	return c, err
}

// comparedKinds are all kinds that can be listed, but those that differ by nature.
func comparedKinds(d *discovery.DiscoveryClient) ([]schema.GroupVersionResource, error) {
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("list the kinds: %w", err)
	}
	var kinds []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") && !skippedKind(r.Kind) {
				kinds = append(kinds, gv.WithResource(r.Name))
			}
		}
	}
	return kinds, nil
}

// identify reads a cluster's identity from its objects and from the authority in its kubeconfig.
func identify(objects []Object, name string, authority []byte) (Identity, error) {
	id := Identity{Authority: digest(authority)}
	for _, o := range objects {
		switch {
		case text(o, "kind") == "Namespace" && text(o, "metadata", "name") == "kube-system":
			id.System = text(o, "metadata", "uid")
		case text(o, "kind") == "Secret" && text(o, "metadata", "name") == name+"-talos":
			bundle, err := base64.StdEncoding.DecodeString(text(o, "data", "bundle"))
			if err != nil {
				return id, fmt.Errorf("read Secret %s-talos: %w", name, err)
			}
			id.Bundle = digest(bundle)
			if id.ServiceAccount, id.Talos, err = keysOf(bundle); err != nil {
				return id, fmt.Errorf("read Secret %s-talos: %w", name, err)
			}
		}
	}
	return id, nil
}

// keysOf digests a Talos bundle's key of service accounts and the authority of its API.
func keysOf(bundle []byte) (serviceAccount, talos string, err error) {
	var b struct {
		Certs struct {
			Account struct{ Key string } `json:"k8sserviceaccount"`
			OS      struct{ Crt string }
		}
	}
	if err := yaml.Unmarshal(bundle, &b); err != nil {
		return "", "", err
	}
	if b.Certs.Account.Key == "" || b.Certs.OS.Crt == "" {
		return "", "", errors.New("the bundle has no key for service accounts, or no authority of the Talos API")
	}
	return digest([]byte(b.Certs.Account.Key)), digest([]byte(b.Certs.OS.Crt)), nil
}

func digest(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// text is the string at a path of an object; empty if there is none.
func text(o Object, path ...string) string {
	var at any = o
	for _, key := range path {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	switch v := at.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}
