package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/operation/rotation"
)

// TestRotateCA replaces the certificate authorities of a cluster that manages itself and has a worker, with kills in
// the middle of each pass. Somebody who has the files of before is refused in the end, by Kubernetes and by the Talos
// of each server; servers, etcd and what is in it stay, and Cluster API makes a server with the new authorities.
func TestRotateCA(t *testing.T) {
	l := &lostCluster{command: bootstrapped(t, "all")}
	l.env = append(l.env, "WORKERS=1")
	if o := l.run(nil, "all", "--lab"); o.exit != 0 {
		t.Fatalf("all, with a worker: exit %d\n%s", o.exit, o.end())
	}
	l.mark(t)
	l.write(t, "last", "ConfigMap", map[string]string{"written": "before"})
	leaked := l.leak(t)
	leaked.opens(t, l)
	servers, boots := l.clusterServerIDs(t), l.bootIDs(t)

	o := l.run(nil, "rotate", "ca", "--lab")
	if o.exit != 2 || !strings.Contains(o.output, "--yes") {
		t.Errorf("without a terminal: exit %d\n%s", o.exit, o.end())
	}
	l.forecast(t, len(servers))
	l.noRotation(t)

	o = l.killedAt(t, rotateMoments(t), func(moment string) {
		// The state folder opens the cluster at each moment, and nothing else changes the cluster meanwhile.
		if out, err := l.exec(t.Context(), "status", "--lab"); err != nil || !strings.Contains(out, "rotate ca") ||
			strings.Count(out, "  member  Ready") != 3 {
			t.Errorf("status, after a kill %s: %v\n%s", moment, err, out)
		}
		if o := l.run(nil, "scale", "workers/general", "2", "--lab", "--yes"); o.exit != 2 ||
			!strings.Contains(o.output, "rotate ca to its end") {
			t.Errorf("scale, after a kill %s: exit %d\n%s", moment, o.exit, o.end())
		}
	}, "rotate", "ca", "--yes", "--lab")
	for _, secret := range []string{"PRIVATE KEY", leaked.key} {
		if strings.Contains(o.output, secret) {
			t.Error("a key is in the output")
		}
	}

	leaked.isRefused(t, l, servers)
	leaked.isNowhere(t, l)
	l.noRotation(t)
	if now := l.clusterServerIDs(t); !slices.Equal(now, servers) {
		t.Errorf("the servers are %v, they were %v", now, servers)
	}
	if now := l.bootIDs(t); fmt.Sprint(now) != fmt.Sprint(boots) {
		t.Errorf("servers have booted: %v, it was %v", now, boots)
	}
	c := l.cluster(t)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: markedNamespace, Name: "last"},
		&corev1.ConfigMap{}); err != nil {
		t.Errorf("what was written before is lost: %v", err)
	}
	if o := l.run(nil, "all", "--lab"); o.exit != 0 || slices.ContainsFunc(o.events, func(e event) bool {
		return e.Kind == "step-started" && e.Step != "lab"
	}) {
		t.Errorf("all, afterwards, which has nothing to do: exit %d\n%s", o.exit, o.output)
	}
	name := l.project().clusterServers(t)[0].Name
	if o := l.run(nil, "replace-machine", name, "--lab"); o.exit != 0 {
		t.Fatalf("replace-machine, afterwards: exit %d\n%s", o.exit, o.end())
	}
	leaked.isRefused(t, l, l.clusterServerIDs(t))
}

// rotateMoments are the moments at which a rotation is killed.
func rotateMoments(t *testing.T) (moments []string) {
	t.Helper()
	if everyMoment() {
		cfg, tools := onPaper()
		moments = momentsOf(must(rotation.New(cfg, tools))(t).Graph)
	}
	// Of four servers: after the first has accepted, after the third has, with the first issuing, with the Secret of
	// new servers changed, and with three servers that have dropped the old authorities.
	const apply = " talos ApplyConfiguration machine.MachineService#"
	return append(moments, "before"+apply+"2", "applied"+apply+"2", "before"+apply+"3",
		"applied workload patch secrets/default/k8s-talos#1", "before"+apply+"4")
}

// leaked are the files that somebody else has.
type leaked struct {
	kubeconfig, talosconfig []byte
	key                     string // of the kubeconfig, in base64
}

func (l *lostCluster) leak(t *testing.T) (files leaked) {
	t.Helper()
	files.kubeconfig = must(os.ReadFile(filepath.Join(l.state, "kubeconfig")))(t)
	files.talosconfig = must(os.ReadFile(filepath.Join(l.state, "talosconfig")))(t)
	_, after, found := bytes.Cut(files.kubeconfig, []byte("client-key-data: "))
	if !found {
		t.Fatal("the kubeconfig has no client key")
	}
	key, _, _ := strings.Cut(string(after), "\n")
	files.key = key
	return files
}

// nodes asks the Kubernetes API for the nodes.
func (f leaked) nodes(ctx context.Context) error {
	c, err := kube.Connect(f.kubeconfig)
	if err != nil {
		return err
	}
	return c.List(ctx, &corev1.NodeList{})
}

func (f leaked) opens(t *testing.T, l *lostCluster) {
	t.Helper()
	if err := f.nodes(t.Context()); err != nil {
		t.Fatalf("before the rotation: %v", err)
	}
	for _, s := range l.project().clusterServers(t) {
		route := talos.Route{Endpoint: s.PublicNet.IPv4.IP.String()}
		if _, err := must(talos.Parse(f.talosconfig))(t).Ask(t.Context(), route); err != nil {
			t.Fatalf("before the rotation: %v", err)
		}
	}
}

// isRefused checks that neither file opens anything, also for somebody who has the certificates of the new authorities.
func (f leaked) isRefused(t *testing.T, l *lostCluster, servers []int64) {
	t.Helper()
	if err := f.nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the old kubeconfig: %v", err)
	}
	now := l.leak(t)
	trusting := f
	trusting.kubeconfig = slices.Concat(now.kubeconfig)
	for _, field := range []string{"client-certificate-data: ", "client-key-data: "} {
		trusting.kubeconfig = bytes.Replace(trusting.kubeconfig, lineOf(now.kubeconfig, field),
			lineOf(f.kubeconfig, field), 1)
	}
	if err := trusting.nodes(t.Context()); !apierrors.IsUnauthorized(err) {
		t.Errorf("the old client certificate, at the new authority's API: %v", err)
	}
	if err := now.nodes(t.Context()); err != nil {
		t.Errorf("the kubeconfig in the state folder: %v", err)
	}
	asked := 0
	for _, s := range l.project().clusterServers(t) {
		if !slices.Contains(servers, s.ID) {
			continue
		}
		asked++
		route := talos.Route{Endpoint: s.PublicNet.IPv4.IP.String()}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := must(talos.Parse(f.talosconfig))(t).Ask(ctx, route); err == nil ||
			!strings.Contains(err.Error(), "certificate") {
			t.Errorf("the old talosconfig, at %s: %v", s.Name, err)
		}
		if _, err := must(talos.Parse(now.talosconfig))(t).Ask(ctx, route); err != nil {
			t.Errorf("the talosconfig in the state folder, at %s: %v", s.Name, err)
		}
		cancel()
	}
	if asked != len(servers) {
		t.Errorf("%d of %d servers were asked", asked, len(servers))
	}
}

// isNowhere checks that no Secret and no ConfigMap of the cluster has a certificate of the old authorities.
func (f leaked) isNowhere(t *testing.T, l *lostCluster) {
	t.Helper()
	var old []string
	for _, encoded := range [][]byte{lineOf(f.kubeconfig, "certificate-authority-data: "),
		lineOf(f.talosconfig, "ca: ")} {
		pem := must(base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded))))(t)
		old = append(old, strings.TrimSpace(string(pem)), strings.TrimSpace(string(encoded)))
	}
	check := func(where string, text []byte) {
		if slices.ContainsFunc(old, func(o string) bool { return o == "" || strings.Contains(string(text), o) }) {
			t.Errorf("%s has an old authority", where)
		}
	}
	secrets, maps := &corev1.SecretList{}, &corev1.ConfigMapList{}
	for _, all := range []client.ObjectList{secrets, maps} {
		if err := l.cluster(t).List(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range secrets.Items {
		for key, value := range s.Data {
			check(fmt.Sprintf("Secret %s/%s, key %s,", s.Namespace, s.Name, key), value)
		}
	}
	for _, m := range maps.Items {
		for key, value := range m.Data {
			check(fmt.Sprintf("ConfigMap %s/%s, key %s,", m.Namespace, m.Name, key), []byte(value))
		}
	}
}

// lineOf is the rest of the line after a field's name.
func lineOf(text []byte, field string) []byte {
	_, after, _ := bytes.Cut(text, []byte(field))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	return line
}

// bootIDs are those of the nodes, by name: another one with each boot of the server.
func (l *lostCluster) bootIDs(t *testing.T) map[string]string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := l.cluster(t).List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, n := range nodes.Items {
		ids[n.Name] = n.Status.NodeInfo.BootID
	}
	return ids
}

// forecast checks what a dry run says, and that it has changed nothing.
func (l *lostCluster) forecast(t *testing.T, servers int) {
	t.Helper()
	out, err := l.exec(t.Context(), "rotate", "ca", "--dry-run", "--lab", "--output", "json")
	var f rotation.Forecast
	if err != nil || json.Unmarshal([]byte(out), &f) != nil {
		t.Fatalf("rotate ca --dry-run: %v\n%s", err, out)
	}
	has := func(kind, name string) bool {
		return slices.ContainsFunc(f.Restarted, func(w kube.Workload) bool { return w.Kind == kind && w.Name == name })
	}
	if f.Kind != "rotate-ca-plan" || f.Resumes || len(f.Servers) != servers || !has("DaemonSet", "cilium") ||
		!has("Deployment", "cacppt-controller-manager") {
		t.Errorf("rotate ca --dry-run: %s", out)
	}
}

// noRotation checks that nothing is left of a rotation.
func (l *lostCluster) noRotation(t *testing.T) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(l.state, "rotate-ca")); err == nil {
		t.Error("the folder of the rotation is there")
	}
	all := &corev1.SecretList{}
	if err := l.cluster(t).List(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		if strings.HasSuffix(s.Name, "-new-authorities") {
			t.Errorf("Secret %s/%s is there", s.Namespace, s.Name)
		}
	}
}
