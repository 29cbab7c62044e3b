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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// newerKubernetes is the version of lab/kubernetes/1.33/go.mod, another minor than the lab's own.
const newerKubernetes = "v1.33.13"

// TestTwoVersions has two minor versions of Kubernetes really run: in two labs at once, each with another version of
// CAPH, and then in one cluster whose servers go from one to the other.
func TestTwoVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the programs of another Kubernetes version")
	}
	c := bootstrapped(t, "bootstrap")
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
	part("one cluster", fromMinorToMinor) // the last: it changes the cluster
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
	for want, lab := range map[string]*command{"v1.0.7": c, "v1.0.12": other} {
		management := clientOf(t, filepath.Join(lab.state, "management.kubeconfig"))
		found, err := management.AppsV1().Deployments("caph-system").List(t.Context(), metav1.ListOptions{})
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

// fromMinorToMinor changes the version of a cluster in a lab that is up: its servers are replaced one after another,
// and what was written before is still there.
func fromMinorToMinor(t *testing.T, c *command, older string) {
	before := workload(t, c)
	kept, err := before.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"written": "with " + older}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Collect(maps.Keys(c.apiVersions(t.Context())))
	watching, stop := context.WithCancel(t.Context())
	both, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		for watching.Err() == nil {
			seen := map[string]bool{}
			for _, version := range c.apiVersions(watching) {
				seen[version] = true
			}
			both = both || seen[older] && seen[newerKubernetes]
			select {
			case <-watching.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	o := c.run(nil, "bootstrap", "--lab", "--yes", "KUBERNETES_VERSION="+newerKubernetes)
	stop()
	<-ended
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.output)
	}
	t.Logf("from %s to %s in %s", older, newerKubernetes, o.elapsed.Round(time.Second))
	if !both {
		t.Errorf("kube-apiservers of %s and %s never answered at the same time", older, newerKubernetes)
	}
	check := func() {
		t.Helper()
		if is := c.onlyVersion(t, 3); is != newerKubernetes {
			t.Errorf("the servers run %s", is)
		}
		for server := range c.apiVersions(t.Context()) {
			if slices.Contains(first, server) {
				t.Errorf("server %s was there before", server)
			}
		}
		after := workload(t, c)
		is, err := after.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil || is.UID != kept.UID || is.Data["written"] != kept.Data["written"] {
			t.Errorf("what was written before is %v, %v", is, err)
		}
		nodes, err := after.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 3 {
			t.Errorf("%d Nodes, %v", len(nodes.Items), err)
		}
		for _, n := range nodes.Items {
			if n.Status.NodeInfo.KubeletVersion != newerKubernetes {
				t.Errorf("Node %s reports %s", n.Name, n.Status.NodeInfo.KubeletVersion)
			}
		}
	}
	check()
	// The lab knows at its next start what its servers need, whatever is configured then.
	c.lab("down")
	c.lab("up")
	check()
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
