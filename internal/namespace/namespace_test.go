package namespace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
)

type fields = map[string]any

type object struct {
	apiVersion, kind, name string
	fields                 fields
}

func connected(t *testing.T) (*kubetest.Server, *kube.Cluster) {
	t.Helper()
	kinds := clustertest.ClusterAPIKinds()
	s := kubetest.New("management", kinds...)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	clustertest.Define(s, kinds)
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func in(namespace string) config.Config {
	c := config.Defaults()
	c.Namespace = namespace
	return c
}

func TestEnsure(t *testing.T) {
	s, c := connected(t)
	for range 2 {
		if err := Ensure(t.Context(), in("team-a"), clustertest.Silent, c); err != nil {
			t.Fatal(err)
		}
	}
	if o := s.Get("v1", "Namespace", "", "team-a"); o == nil || o.GetLabels()[managedByLabel] != managedBy ||
		len(s.Writes()) != 1 {
		t.Errorf("got %v after %v", o, s.Writes())
	}
	s.Put(kubetest.Object("v1", "Namespace", "", "theirs", nil))
	for _, there := range []string{"theirs", config.DefaultNamespace} {
		if err := Ensure(t.Context(), in(there), clustertest.Silent, c); err != nil || len(s.Writes()) != 1 {
			t.Errorf("%s: %v, %v", there, err, s.Writes())
		}
	}
}

// A namespace of the same name that is being deleted is waited for.
func TestEnsureAwaitsDeletion(t *testing.T) {
	s, c := connected(t)
	s.Put(kubetest.Object("v1", "Namespace", "", "team-a", fields{"metadata": fields{
		"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"test"}}}))
	waited := false
	say := func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), "being deleted") {
			waited = true
			s.Remove("v1", "Namespace", "", "team-a")
		}
	}
	if err := Ensure(t.Context(), in("team-a"), say, c); err != nil || !waited ||
		s.Get("v1", "Namespace", "", "team-a") == nil {
		t.Errorf("%v, waited: %v", err, waited)
	}
}

// Only a namespace that Slipway created, and in which nothing but the remains of the cluster is, is deleted.
func TestRemove(t *testing.T) {
	ours := fields{"metadata": fields{"labels": fields{managedByLabel: managedBy}}}
	of := func(cluster string) fields {
		return fields{"metadata": fields{"labels": fields{capi.ClusterNameLabel: cluster}}}
	}
	for name, tt := range map[string]struct {
		namespace string
		is        fields // of the namespace
		holds     *object
		kept      string // what is said of it; empty: it is deleted
	}{
		"empty":                        {namespace: "team-a", is: ours},
		"made by someone else":         {namespace: "team-a", is: nil, kept: "did not create"},
		"the default namespace":        {namespace: config.DefaultNamespace, is: ours, kept: "-"},
		"another cluster":              {"team-a", ours, &object{clustertest.CAPI, "Cluster", "other", nil}, "Cluster other"},
		"the cluster itself":           {"team-a", ours, &object{clustertest.CAPI, "Cluster", "k8s", of("k8s")}, "Cluster k8s"},
		"its remains":                  {"team-a", ours, &object{clustertest.CAPH, "HCloudMachineTemplate", "k8s-a", of("k8s")}, ""},
		"another cluster's template":   {"team-a", ours, &object{clustertest.CAPH, "HCloudMachineTemplate", "other-a", of("other")}, "HCloudMachineTemplate other-a"},
		"its kubeconfig":               {"team-a", ours, &object{"v1", "Secret", "k8s-kubeconfig", nil}, ""},
		"the token":                    {"team-a", ours, &object{"v1", "Secret", config.TokenSecretName, nil}, ""},
		"a state that is stored there": {"team-a", ours, &object{"v1", "Secret", "slipway-state", nil}, "Secret slipway-state"},
		"a run in it":                  {"team-a", ours, &object{"v1", "Pod", "run", nil}, "Pod run"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := connected(t)
			s.Put(kubetest.Object("v1", "Namespace", "", tt.namespace, tt.is))
			s.Put(kubetest.Object("v1", "ConfigMap", tt.namespace, rootCertificates, nil))
			if h := tt.holds; h != nil {
				s.Put(kubetest.Object(h.apiVersion, h.kind, tt.namespace, h.name, h.fields))
			}
			var said strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			for range 2 { // the second time it is gone
				if err := Remove(t.Context(), in(tt.namespace), say, c); err != nil {
					t.Fatal(err)
				}
			}
			there := s.Get("v1", "Namespace", "", tt.namespace) != nil
			if there != (tt.kept != "") || tt.kept != "-" && !strings.Contains(said.String(), tt.kept) {
				t.Errorf("kept: %v, and it says %q; want %q", there, said.String(), tt.kept)
			}
		})
	}
}
