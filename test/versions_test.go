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

// TestTwoVersions has two minor versions of Kubernetes really run: in two labs at once, each with another version of
// CAPH, and then in one cluster that manages itself and is upgraded from one to the other.
func TestTwoVersions(t *testing.T) {
	c := bootstrapped(t, "all")
	began := time.Now()
	if out, err := c.exec(t.Context(), "lab", "build", "KUBERNETES_VERSION="+newerKubernetes); err != nil {
		t.Fatalf("lab build: %v\n%s", err, out)
	}
	t.Logf("programs of %s in %s", newerKubernetes, time.Since(began).Round(time.Second))
	older := c.onlyVersion(t, 3)
	if !strings.HasPrefix(older, "v1.32.") {
		t.Fatalf("the lab's own version is %s", older)
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

// twoLabs starts another lab beside one that is up: of another Kubernetes, and with another CAPH.
func twoLabs(t *testing.T, c *command, older string) {
	other := newCommand(t)
	o := other.run(nil, "kubeconfig", "--lab", "CONTROL_PLANE_REPLICAS=1", "KUBERNETES_VERSION="+newerKubernetes,
		"CAPH_VERSION=v1.0.12")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.output)
	}
	t.Logf("a lab of %s in %s", newerKubernetes, o.elapsed.Round(time.Second))
	if strings.Contains(o.output, "the lab runs Kubernetes") {
		t.Errorf("it says that another version runs\n%s", o.output)
	}
	if is := other.onlyVersion(t, 1); is != newerKubernetes {
		t.Errorf("the other lab's server runs %s", is)
	}
	if is := c.onlyVersion(t, 3); is != older {
		t.Errorf("the first lab's servers run %s", is)
	}
	for want, kubeconfig := range map[string]string{"v1.0.7": filepath.Join(c.state, "kubeconfig"),
		"v1.0.12": filepath.Join(other.state, "management.kubeconfig")} {
		found, err := clientOf(t, kubeconfig).AppsV1().Deployments("caph-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(found.Items) != 1 {
			t.Fatalf("CAPH's Deployments: %v", err)
		}
		if image := found.Items[0].Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+want) {
			t.Errorf("CAPH is %s, not %s", image, want)
		}
	}
	parts := other.fidelities()
	if parts["Kubernetes "+newerKubernetes] != "real" {
		t.Errorf("lab status does not say that Kubernetes %s is real: %v", newerKubernetes, parts)
	}
	other.lab("down")
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
