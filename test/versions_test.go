package test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// newerKubernetes is the version of lab/kubernetes/1.33/go.mod, another minor than the lab's own.
const newerKubernetes = "v1.33.13"

// TestTwoVersions has minor versions of Kubernetes and of Cluster API really run: in two labs at once, of the guide's
// version set and of the default one, and then in one cluster of the guide's set that manages itself and is upgraded from
// one Kubernetes to the next.
func TestTwoVersions(t *testing.T) {
	c := newCommand(t)
	if o := c.run(nil, "all", "--lab", "VERSIONS=guide"); o.exit != 0 { // later runs keep it
		t.Fatalf("all of guide: exit %d\n%s", o.exit, o.end())
	}
	began := time.Now()
	if out, err := c.exec(t.Context(), "lab", "build", "KUBERNETES_VERSION="+newerKubernetes); err != nil {
		t.Fatalf("lab build: %v\n%s", err, out)
	}
	t.Logf("programs of %s in %s", newerKubernetes, time.Since(began).Round(time.Second))
	older := c.onlyVersion(t, 3)
	if !strings.HasPrefix(older, "v1.32.") {
		t.Fatalf("the servers run %s", older)
	}
	part := func(name string, f func(*testing.T, *command, string)) {
		t.Run(name, func(t *testing.T) {
			inner := *c
			inner.t = t
			f(t, &inner, older)
		})
	}
	part("two labs", twoLabs)
	part("rehearsal", rehearsed)
	part("upgrade", upgraded) // the last: it changes the cluster
}

// twoLabs has another lab beside one that is up, in which the default set goes through all: Kubernetes 1.35, Cluster
// API 1.13 and CAPH 1.1, of which the first lab has older ones.
func twoLabs(t *testing.T, c *command, older string) {
	other := newCommand(t)
	o := other.run(nil, "all", "--lab", "CONTROL_PLANE_REPLICAS=1")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	for _, says := range []string{"the lab runs Kubernetes", "in the lab, in place of"} {
		if strings.Contains(o.output, says) {
			t.Errorf("it says that another version runs\n%s", o.output)
		}
	}
	if is := other.onlyVersion(t, 1); is != supportedKubernetes {
		t.Errorf("the other lab's server runs %s", is)
	}
	if is := c.onlyVersion(t, 3); is != older {
		t.Errorf("the first lab's servers run %s", is)
	}
	providersAre(t, c, map[string]string{"caph-system": "v1.0.7", "capi-system": "v1.10.10"})
	providersAre(t, other, newerProviders)
	parts := other.fidelities()
	for _, part := range []string{"kube-apiserver", "cluster-api-controller"} {
		if parts[part] != "real" {
			t.Errorf("lab status does not say that %s is real: %v", part, parts)
		}
	}
	other.lab("down")
}

// newerProviders are the namespaces of CAPH and of Cluster API's core, and their versions in the set 2026-11.
var newerProviders = map[string]string{"caph-system": "v1.1.8", "capi-system": "v1.13.6"}

// providersAre says which providers of a cluster that manages itself have other versions than wanted.
func providersAre(t *testing.T, c *command, want map[string]string) {
	t.Helper()
	for namespace, version := range want {
		found, err := workload(t, c).AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(found.Items) != 1 {
			t.Fatalf("Deployments in %s: %v", namespace, err)
		}
		if image := found.Items[0].Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+version) {
			t.Errorf("%s has %s, not %s", namespace, image, version)
		}
	}
}

// fidelities are the parts of the lab's status, and how faithful each is.
func (c *command) fidelities() map[string]string {
	c.t.Helper()
	var status struct {
		Parts []struct{ Name, Fidelity string }
	}
	c.labGet("/v1/status", &status)
	parts := map[string]string{}
	for _, p := range status.Parts {
		parts[p.Name] = p.Fidelity
	}
	return parts
}

// onlyVersion waits until so many kube-apiservers answer, all of one version, which the lab's status says, too.
func (c *command) onlyVersion(t *testing.T, servers int) (version string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d kube-apiservers of one version", servers), time.Minute, func(ctx context.Context) string {
		all := c.apiVersions(ctx)
		one := slices.Compact(slices.Sorted(maps.Values(all)))
		if len(all) != servers || len(one) != 1 {
			return fmt.Sprintf("it is %v", all)
		}
		version = one[0]
		var status struct {
			Servers []struct{ Name, Kubernetes string }
		}
		if err := c.labCall(http.MethodGet, "/v1/status", &status); err != nil {
			return err.Error()
		}
		for _, s := range status.Servers {
			if says, _, _ := strings.Cut(s.Kubernetes, " "); all[s.Name] != "" && says != version {
				return fmt.Sprintf("lab status says of %s that it runs %q", s.Name, s.Kubernetes)
			}
		}
		return ""
	})
	return version
}

// apiVersions asks the kube-apiserver of each server for its version, at the server's own address. Servers that do not
// answer are left out.
func (c *command) apiVersions(ctx context.Context) map[string]string {
	versions := map[string]string{}
	kubeconfig, err := os.ReadFile(filepath.Join(c.state, "kubeconfig"))
	if err != nil {
		return versions
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return versions
	}
	config.Timeout = 5 * time.Second
	var status struct {
		Servers []struct{ Name, PublicIPv4 string }
	}
	if err := c.labCall(http.MethodGet, "/v1/status", &status); err != nil {
		return versions
	}
	for _, s := range status.Servers {
		config.Host = "https://" + s.PublicIPv4 + ":6443"
		client, err := kubernetes.NewForConfig(config)
		if err != nil || ctx.Err() != nil {
			continue
		}
		if is, err := client.Discovery().ServerVersion(); err == nil {
			versions[s.Name] = is.GitVersion
		}
	}
	return versions
}
