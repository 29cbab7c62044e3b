package apply

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

type fields = map[string]any

type object struct {
	apiVersion, kind, name string
	fields                 fields
}

func connected(t *testing.T) (*kubetest.Server, *kube.Cluster) {
	t.Helper()
	kinds := clustertest.ClusterAPIKinds()
	s := kubetest.New("management", append(others(), kinds...)...)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	clustertest.Define(s, kinds)
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// others are kinds of the API server, and of what else is installed.
func others() []kubetest.Resource {
	return []kubetest.Resource{
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding", Plural: "rolebindings"},
		{Group: "events.k8s.io", Version: "v1", Kind: "Event", Plural: "events"},
		{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice", Plural: "endpointslices"},
		{Version: "v1", Kind: "Endpoints", Plural: "endpoints"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets"},
		{Group: "external-secrets.io", Version: "v1", Kind: "ExternalSecret", Plural: "externalsecrets"},
		{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization", Plural: "kustomizations"},
		{Group: "example.com", Version: "v1", Kind: "Secret", Plural: "secrets"},
		{Group: "custom.metrics.k8s.io", Version: "v1", Kind: "MetricValueList", Plural: "measurements"},
	}
}

func in(namespace string) config.Config {
	c := config.Defaults()
	c.Namespace = namespace
	return c
}

func TestEnsure(t *testing.T) {
	s, c := connected(t)
	for range 2 {
		if err := Namespace(t.Context(), in("team-a"), clustertest.Silent, c); err != nil {
			t.Fatal(err)
		}
	}
	if o := s.Get("v1", "Namespace", "", "team-a"); o == nil || o.GetLabels()[managedByLabel] != managedBy ||
		len(s.Writes()) != 1 {
		t.Errorf("got %v after %v", o, s.Writes())
	}
	s.Put(kubetest.Object("v1", "Namespace", "", "theirs", nil))
	for _, there := range []string{"theirs", config.DefaultNamespace} {
		if err := Namespace(t.Context(), in(there), clustertest.Silent, c); err != nil || len(s.Writes()) != 1 {
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
	if err := Namespace(t.Context(), in("team-a"), say, c); err != nil || !waited ||
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
	owned := fields{"metadata": fields{"ownerReferences": []any{fields{"apiVersion": "apps/v1", "kind": "Deployment",
		"name": "web", "uid": "u", "controller": true}}}}
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
		"a Service":                    {"team-a", ours, &object{"v1", "Service", "web", nil}, "Service web"},
		"a Deployment":                 {"team-a", ours, &object{"apps/v1", "Deployment", "web", nil}, "Deployment web"},
		"an account":                   {"team-a", ours, &object{"v1", "ServiceAccount", "ci", nil}, "ServiceAccount ci"},
		"rights":                       {"team-a", ours, &object{"rbac.authorization.k8s.io/v1", "RoleBinding", "ci", nil}, "RoleBinding ci"},
		"a custom resource":            {"team-a", ours, &object{"external-secrets.io/v1", "ExternalSecret", "db", nil}, "ExternalSecret db"},
		"an object of Flux":            {"team-a", ours, &object{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "app", nil}, "Kustomization app"},
		"a kind that is called Secret": {"team-a", ours, &object{"example.com/v1", "Secret", config.TokenSecretName, nil}, "Secret " + config.TokenSecretName},
		"a ReplicaSet without owner":   {"team-a", ours, &object{"apps/v1", "ReplicaSet", "web", nil}, "ReplicaSet web"},
		"a ReplicaSet of another":      {"team-a", ours, &object{"apps/v1", "ReplicaSet", "web-1", owned}, ""},
		"an event":                     {"team-a", ours, &object{"v1", "Event", "e", nil}, ""},
		"an event of the newer API":    {"team-a", ours, &object{"events.k8s.io/v1", "Event", "e", nil}, ""},
		"a Lease":                      {"team-a", ours, &object{"coordination.k8s.io/v1", "Lease", "l", nil}, ""},
		"an EndpointSlice":             {"team-a", ours, &object{"discovery.k8s.io/v1", "EndpointSlice", "web-1", nil}, ""},
		"Endpoints":                    {"team-a", ours, &object{"v1", "Endpoints", "web", nil}, ""},
		"a measurement":                {"team-a", ours, &object{"custom.metrics.k8s.io/v1", "MetricValueList", "m", nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := connected(t)
			s.Put(kubetest.Object("v1", "Namespace", "", tt.namespace, tt.is))
			s.Put(kubetest.Object("v1", "ConfigMap", tt.namespace, rootCertificates, nil))
			s.Put(kubetest.Object("v1", "ServiceAccount", tt.namespace, defaultAccount, nil))
			if h := tt.holds; h != nil {
				s.Put(kubetest.Object(h.apiVersion, h.kind, tt.namespace, h.name, h.fields))
			}
			var said strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			for range 2 { // the second time it is gone
				if err := RemoveNamespace(t.Context(), in(tt.namespace), say, c); err != nil {
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

// A namespace of which it is not known what others have in it stays, and why is said.
func TestRemoveOfAnUnknownNamespace(t *testing.T) {
	for name, tt := range map[string]struct {
		path string // that is refused
		code int
		says string // empty: the namespace is deleted
	}{
		"may not be listed":   {"/apis/external-secrets.io/v1/namespaces/team-a/externalsecrets", 403, "ExternalSecret.external-secrets.io"},
		"server is down":      {"/apis/external-secrets.io/v1/namespaces/team-a/externalsecrets", 503, "ExternalSecret.external-secrets.io"},
		"kinds are not known": {"/apis/external-secrets.io/v1", 503, "external-secrets.io/v1"},
		"no measurements":     {"/apis/custom.metrics.k8s.io/v1", 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := connected(t)
			s.Put(kubetest.Object("v1", "Namespace", "", "team-a", fields{"metadata": fields{"labels": fields{managedByLabel: managedBy}}}))
			s.Fail = func(r *http.Request) (int, string) {
				if r.URL.Path == tt.path {
					return tt.code, "refused by the test"
				}
				return 0, ""
			}
			var said strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := RemoveNamespace(t.Context(), in("team-a"), say, c); err != nil {
				t.Fatal(err)
			}
			there := s.Get("v1", "Namespace", "", "team-a") != nil
			if there != (tt.says != "") || there && !(strings.Contains(said.String(), tt.says) &&
				strings.Contains(said.String(), "leaving namespace team-a")) {
				t.Errorf("it is there: %v; said %q", there, said.String())
			}
		})
	}
}

// An API server that does not answer is asked again by the next run.
func TestRemoveWithoutAnAnswer(t *testing.T) {
	s, c := connected(t)
	s.Put(kubetest.Object("v1", "Namespace", "", "team-a", fields{"metadata": fields{"labels": fields{managedByLabel: managedBy}}}))
	s.Fail = func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/externalsecrets") {
			return kubetest.Garbled, ""
		}
		return 0, ""
	}
	if err := RemoveNamespace(t.Context(), in("team-a"), clustertest.Silent, c); err == nil ||
		!strings.Contains(err.Error(), "find out what is in namespace team-a") {
		t.Errorf("got %v", err)
	}
}
