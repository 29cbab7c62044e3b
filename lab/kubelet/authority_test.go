package kubelet

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// TestAuthorityOfPod has a Pod verify the API server with the authority of its namespace's ConfigMap, also with a later
// one.
func TestAuthorityOfPod(t *testing.T) {
	w := start(t, serve(t))
	pod := servedPod("web")
	pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCA}}}}}}}}
	w.create(pod)
	w.awaitPod("web", "the Pod waits for the ConfigMap", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil &&
			strings.Contains(s[0].State.Waiting.Message, `configmap "kube-root-ca.crt" not found`)
	})
	eventually(t, "the ConfigMap is watched", func() (string, bool) { return "", watches(w.api, "configmaps") })
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCA, Namespace: "default"},
		Data: map[string]string{"ca.crt": "of the cluster"}}
	if _, err := w.api.CoreV1().ConfigMaps("default").Create(t.Context(), published,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitReady("web")
	before := w.processes()
	is := func(want string) {
		t.Helper()
		for _, volume := range []string{identityVolume, "kube-api-access"} {
			eventually(t, "the authority in "+volume, func() (string, bool) {
				b, _ := os.ReadFile(filepath.Join(w.podsDir(), "web-uid", "volumes", volume, "ca.crt"))
				return string(b), string(b) == want
			})
		}
	}
	is("of the cluster")
	published.Data["ca.crt"] = "another"
	if _, err := w.api.CoreV1().ConfigMaps("default").Update(t.Context(), published,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	is("another")
	if now := w.processes(); len(now) != 1 || now[0] != before[0] {
		t.Errorf("processes %v, were %v", now, before)
	}
}

// TestAcceptedClients has the kubelet's API follow the authorities that are trusted.
func TestAcceptedClients(t *testing.T) {
	cas := map[string]*pki.CA{}
	for _, name := range []string{"old", "new"} {
		ca, err := pki.NewCA("kubernetes") // authorities of one cluster have one name
		if err != nil {
			t.Fatal(err)
		}
		cas[name] = ca
	}
	var accepted atomic.Pointer[[]byte]
	accept := func(names ...string) {
		var pem []byte
		for _, name := range names {
			pem = append(pem, cas[name].Cert()...)
		}
		accepted.Store(&pem)
	}
	accept("old")
	w := start(t, func(c *Config) { c.Accepted = func() ([]byte, error) { return *accepted.Load(), nil } })
	address := ""
	eventually(t, "the kubelet's API", func() (string, bool) {
		var ok bool
		address, ok = w.cfg.Registry.Kubelet("test", "node-1")
		return "", ok
	})
	served := func(name string) bool {
		t.Helper()
		pair, err := cas[name].Issue(pki.Request{CommonName: "kube-apiserver", Organizations: []string{mastersGroup}})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", address, &tls.Config{Certificates: []tls.Certificate{cert},
			InsecureSkipVerify: true,
			MaxVersion:         tls.VersionTLS12}) // with which the handshake ends after the client has been judged
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	for _, step := range []struct {
		accept     []string
		olds, news bool
	}{{[]string{"old"}, true, false}, {[]string{"new", "old"}, true, true}, {[]string{"new"}, false, true}} {
		accept(step.accept...)
		if served("old") != step.olds || served("new") != step.news {
			t.Errorf("accepted %v: the old one's client %t, the new one's %t", step.accept, served("old"),
				served("new"))
		}
	}
}
