package flux

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// doc is an object, or a part of one.
type doc = map[string]any

// pruneAnnotation keeps kustomize-controller from deleting what is no longer in Git.
const pruneAnnotation = "kustomize.toolkit.fluxcd.io/prune"

// helmRelease is the object by which the helm-controller takes a release over: of the same name, in the namespaces in
// which it is.
func helmRelease(r Release, repository string) doc {
	install := doc{"remediation": doc{"retries": retries}}
	upgrade := doc{"remediation": doc{"retries": retries}}
	if !r.waits {
		install["disableWait"], upgrade["disableWait"] = true, true
	}
	if r.Namespace != "kube-system" {
		install["createNamespace"] = true
	}
	spec := doc{
		"interval": duration(interval), "timeout": duration(r.timeout), "releaseName": r.Release,
		"targetNamespace": r.Namespace, "storageNamespace": r.Namespace,
		"chart": doc{"spec": doc{"chart": r.Name, "version": r.Version, "interval": duration(interval),
			"sourceRef": doc{"kind": "HelmRepository", "name": repository}}},
		"install": install, "upgrade": upgrade,
	}
	if len(r.after) > 0 {
		var on []any
		for _, name := range r.after {
			on = append(on, doc{"name": name})
		}
		spec["dependsOn"] = on
	}
	if len(r.Values) > 0 {
		spec["values"] = r.Values
	}
	if len(r.Private) > 0 {
		spec["valuesFrom"] = []any{doc{"kind": "Secret", "name": r.Secret()}}
	}
	o := treeObject(HelmReleaseKind, r.Program, spec)
	// Without infrastructure the cluster has no network, and its nodes are not initialised; without Gitea, which may be
	// where the tree is, Flux does not learn of the next commit.
	if r.folder == infrastructure || r.Program == config.AddonGitea {
		o["metadata"].(doc)["annotations"] = doc{pruneAnnotation: "disabled"}
	}
	return o
}

// helmRepository is the object by which the source-controller reads a chart repository. User and password of its
// address are in a Secret of the same name.
func helmRepository(name, address string) (o doc, secret bool) {
	spec := doc{"interval": duration(interval), "timeout": duration(indexTimeout)}
	u, err := url.Parse(address) // ReadReleases left out what cannot be read
	if err == nil && u.User != nil {
		u.User, secret = nil, true
		address, spec["secretRef"] = u.String(), doc{"name": name}
	}
	spec["url"] = address
	if (kube.ChartSource{Repository: address}).Registry() {
		spec["type"] = "oci"
	}
	return treeObject(GitRepositoryKind.GroupVersion().WithKind("HelmRepository"), name, spec), secret
}

// kustomization is the object by which the kustomize-controller applies a folder, and waits for the releases in it.
func kustomization(folder, name string, timeout time.Duration, on ...string) doc {
	spec := doc{"interval": duration(syncInterval), "retryInterval": duration(retryInterval), "timeout": duration(timeout),
		"prune": true, "wait": true, "path": "./" + path.Join(folder, name),
		"sourceRef": doc{"kind": GitRepositoryKind.Kind, "name": Name}}
	for _, other := range on {
		spec["dependsOn"] = []any{doc{"name": other}}
	}
	return treeObject(KustomizationKind, name, spec)
}

func treeObject(kind schema.GroupVersionKind, name string, spec doc) doc {
	return doc{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
		"metadata": doc{"name": name, "namespace": Namespace}, "spec": spec}
}

// list is the kustomization.yaml of a folder.
func list(resources []string) doc {
	return doc{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
}

// duration is written as people write it: 15m, not 15m0s.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func encode(o doc) (string, error) {
	data, err := yaml.Marshal(o)
	return string(data), err
}

// together is how long the releases of a folder take at most, each after those that it depends on.
func together(releases []Release, folder string) (longest time.Duration) {
	within := map[string]time.Duration{}
	var visit func(Release) time.Duration
	visit = func(r Release) time.Duration {
		if d, done := within[r.Program]; done {
			return d
		}
		var before time.Duration
		for _, other := range releases {
			if other.folder == folder && slices.Contains(r.after, other.Program) {
				before = max(before, visit(other))
			}
		}
		within[r.Program] = before + r.timeout
		return within[r.Program]
	}
	for _, r := range releases {
		if r.folder == folder {
			longest = max(longest, visit(r))
		}
	}
	return longest
}

// repositoryNames gives each chart repository a name, made of its address.
func repositoryNames(releases []Release) (names map[string]string, order []string) {
	names = map[string]string{}
	used := map[string]bool{}
	for _, r := range releases {
		if names[r.Repository] != "" {
			continue
		}
		base := repositoryName(r.Repository)
		name := base
		for n := 2; used[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		names[r.Repository], used[name] = name, true
		order = append(order, r.Repository)
	}
	return names, order
}

// repositoryName is host and path of an address with dashes: charts-hetzner-cloud.
func repositoryName(address string) string {
	const longest = 50 // a number may follow, and Flux appends to it
	u, err := url.Parse(address)
	if err != nil {
		return "charts"
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(u.Host+u.Path))
	if len(name) > longest {
		name = name[:longest]
	}
	return strings.Trim(name, "-")
}
