package steps

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/platform"
)

// selfManaged is an environment whose cluster manages itself: the cluster that the kubeconfig in the state folder opens
// holds its objects.
func selfManaged(t *testing.T) (*clustertest.Environment, flow.Journal) {
	t.Helper()
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Steps["pivot"] = flow.Record{State: flow.StateDone, Output: []byte(`{"cluster":"uid","servers":[100,101,102]}`)}
	if err := journal.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := w.Tools().Files.Write(platform.Kubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return w, journal
}

// deviations are those of a configuration in which the operator wrote what is not the default.
func deviationsFrom(t *testing.T, w *clustertest.Environment, cfg config.Config,
	j flow.Journal) []changes.Deviation {
	t.Helper()
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := j.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	writes := w.Writes()
	found, err := changes.FindDeviations(t.Context(), cfg, plan.b.tools, plan.b.sources, snapshot,
		func(field string) (string, bool) {
			for _, v := range config.Variables() {
				if v.Field == field && v.Get(cfg) != v.Default {
					return "argument " + v.Name + "=" + v.Get(cfg), true
				}
			}
			return "default", false
		})
	if err != nil {
		t.Fatal(err)
	}
	if w.Writes() != writes {
		t.Error("the comparison wrote something")
	}
	return found
}

// summaries are what the deviations say, with a mark on those that are requests.
func summaries(all []changes.Deviation) (lines []string) {
	for _, d := range all {
		mark := "drift: "
		if d.Requested {
			mark = "request: "
		}
		lines = append(lines, mark+d.Summary())
	}
	return lines
}

func TestDeviations(t *testing.T) {
	scaled := clustertest.Map{"spec": clustertest.Map{"replicas": int64(5)}}
	cluster, err := manifests.Files.ReadFile(manifests.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		Configure []string        // of the configuration
		live      clustertest.Map // what kubectl changed in the control plane
		file      string          // in place of manifests/cluster.yaml
		forget    bool            // the journal is lost
		seen      string          // what access saw of the variables
		want      []string
	}{
		"nothing":                          {},
		"nothing, and the journal is lost": {forget: true},
		"Kubernetes": {Configure: []string{"KUBERNETES_VERSION=v1.36.5"},
			want: []string{"request: KUBERNETES_VERSION is v1.36.5 (argument KUBERNETES_VERSION=v1.36.5), and the cluster has " +
				"v1.35.4"}},
		"Kubernetes, and the journal is lost": {Configure: []string{"KUBERNETES_VERSION=v1.36.5"}, forget: true,
			want: []string{"request: KUBERNETES_VERSION is v1.36.5 (argument KUBERNETES_VERSION=v1.36.5), and the cluster has " +
				"v1.35.4"}},
		"Kubernetes, which kubectl has upgraded": {Configure: []string{"KUBERNETES_VERSION=v1.36.5"},
			live: clustertest.Map{"spec": clustertest.Map{"version": "v1.36.5"}}},
		"scaled with kubectl": {live: scaled,
			want: []string{"drift: CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5"}},
		"scaled with kubectl, and the journal is lost": {live: scaled, forget: true,
			want: []string{"drift: CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5"}},
		"scaled with kubectl, and to be scaled again": {live: scaled, Configure: []string{"CONTROL_PLANE_REPLICAS=7"},
			want: []string{"request: CONTROL_PLANE_REPLICAS is 7 (argument CONTROL_PLANE_REPLICAS=7), and the cluster has 5"}},
		"scaled with kubectl, configured, and scaled again with kubectl": {live: clustertest.Map{"spec": clustertest.Map{"replicas": int64(7)}},
			Configure: []string{"CONTROL_PLANE_REPLICAS=5"}, seen: `{"CONTROL_PLANE_REPLICAS":"5"}`,
			want: []string{"drift: CONTROL_PLANE_REPLICAS is 5 (argument CONTROL_PLANE_REPLICAS=5), and the cluster has 7"}},
		"servers": {Configure: []string{"SERVER_TYPE=cx43", "TALOS_VERSION=v1.13.10", "IMAGE_NAME=mine"}, want: []string{
			"request: SERVER_TYPE is cx43 (argument SERVER_TYPE=cx43), and the cluster has cx33",
			"request: IMAGE_NAME is mine (argument IMAGE_NAME=mine), and the cluster has (none)",
			"request: TALOS_VERSION is v1.13.10 (argument TALOS_VERSION=v1.13.10), and the cluster has v1.13.9",
		}},
		"network": {Configure: []string{"LOCATION=fsn1", "LOAD_BALANCER_TYPE=lb21", "NETWORK_CIDR=10.0.0.0/8",
			"POD_CIDR=10.11.0.0/16"}, want: []string{
			"request: LOCATION is fsn1 (argument LOCATION=fsn1), and the cluster has nbg1",
			"request: LOAD_BALANCER_TYPE is lb21 (argument LOAD_BALANCER_TYPE=lb21), and the cluster has lb11",
			"request: NETWORK_CIDR is 10.0.0.0/8 (argument NETWORK_CIDR=10.0.0.0/8), and the cluster has 10.10.0.0/16",
			"request: POD_CIDR is 10.11.0.0/16 (argument POD_CIDR=10.11.0.0/16), and the cluster has 10.10.128.0/17",
		}},
		"OpenID Connect": {Configure: []string{"OIDC_ISSUER_URL=https://id.example", "OIDC_CLIENT_ID=k8s"}, want: []string{
			"request: OIDC_ISSUER_URL is https://id.example (argument OIDC_ISSUER_URL=https://id.example), and the cluster " +
				"has (none)",
			"request: OIDC_CLIENT_ID is k8s (argument OIDC_CLIENT_ID=k8s), and the cluster has (none)",
		}},
		"providers": {Configure: []string{"CAPH_VERSION=v1.1.9", "CAPI_VERSION=v1.13.7"}, want: []string{
			"request: CAPI_VERSION is v1.13.7 (argument CAPI_VERSION=v1.13.7), and the cluster has v1.13.6",
			"request: CAPH_VERSION is v1.1.9 (argument CAPH_VERSION=v1.1.9), and the cluster has v1.1.8",
		}},
		"what is not of the cluster": {Configure: []string{"RELEASE_TIMEOUT=20m", "BACKUP_TO=elsewhere",
			"FIREWALL_ALLOW=192.0.2.0/24"}},
		"a manifest was edited": {file: strings.Replace(string(cluster), "maxSurge: 1", "maxSurge: 0", 1), want: []string{
			"request: the manifests (OWN) differ from the cluster: applying them changes TalosControlPlane k8s-control-plane " +
				"in place: " +
				"spec.rolloutStrategy.rollingUpdate.maxSurge 1 → 0",
		}},
		"a comment of a manifest was edited": {file: string(cluster) + "# more\n"},
		"an object was changed with kubectl": {live: clustertest.Map{"spec": clustertest.Map{"rolloutStrategy": clustertest.Map{"rollingUpdate": clustertest.Map{"maxSurge": int64(0)}}}}, want: []string{
			"drift: the manifests (manifests/cluster.yaml) differ from the cluster: applying them changes TalosControlPlane " +
				"k8s-control-plane in place: " +
				"spec.rolloutStrategy.rollingUpdate.maxSurge 0 → 1",
		}},
		"Kubernetes, in a manifest of one's own": {Configure: []string{"KUBERNETES_VERSION=v1.36.5"},
			file: strings.ReplaceAll(string(cluster), "${KUBERNETES_VERSION:=v1.35.4}", `"${KUBERNETES_VERSION}"`),
			want: []string{"request: KUBERNETES_VERSION is v1.36.5 (argument KUBERNETES_VERSION=v1.36.5), and the cluster has " +
				"v1.35.4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, journal := selfManaged(t)
			cfg := w.Config()
			for _, value := range tt.Configure {
				clustertest.Configure(t, &cfg, value)
			}
			if tt.live != nil {
				w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", tt.live)
			}
			if tt.file != "" {
				write(t, w.Tools().Overrides, "manifests/"+manifests.Cluster, tt.file)
			}
			if tt.seen != "" {
				s, err := journal.Load(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.Steps["access"] = flow.Record{State: flow.StateDone, Output: []byte(`{"values":` + tt.seen + `}`)}
				if err := journal.Save(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if tt.forget {
				journal = flow.Memory()
				if err := w.Tools().Files.Folder(records.PivotFolder).Write(records.PivotRecord,
					[]byte(`{"phase":"settled","cluster":"k8s"}`)); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, line := range summaries(deviationsFrom(t, w, cfg, journal)) {
				got = append(got, strings.ReplaceAll(line, w.Tools().Overrides+"/manifests/"+manifests.Cluster, "OWN"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// Each is one line that says what to do in either direction.
func TestDeviationsSayWhatToDo(t *testing.T) {
	w, journal := selfManaged(t)
	cfg := w.Config()
	for _, value := range []string{"KUBERNETES_VERSION=v1.36.5", "LOCATION=fsn1", "CAPH_VERSION=v1.1.9"} {
		clustertest.Configure(t, &cfg, value)
	}
	w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		clustertest.Map{"spec": clustertest.Map{"replicas": int64(5)}})
	all := deviationsFrom(t, w, cfg, journal)
	for i, says := range [][]string{
		{"LOCATION", "to change the cluster: it cannot be changed", "leave LOCATION out, with location: nbg1 in " +
			"bootstrap.yaml"},
		{"CONTROL_PLANE_REPLICAS", "to change the cluster: bootstrap scale control-plane 3",
			"to keep it: controlPlaneReplicas: 5 in bootstrap.yaml"},
		{"KUBERNETES_VERSION", "to change the cluster: bootstrap upgrade", "kubernetesVersion: v1.35.4 in bootstrap.yaml"},
		{"CAPH_VERSION", "to change the cluster: bootstrap upgrade", "caphVersion: v1.1.8 in bootstrap.yaml"},
	} {
		if i >= len(all) {
			t.Fatalf("only %d deviations", len(all))
		}
		line := all[i].String()
		for _, part := range says {
			if !strings.Contains(line, part) || strings.Contains(line, "\n") {
				t.Errorf("%q does not say %q", line, part)
			}
		}
	}
	if got := changes.RequestedDeviations(all); len(got) != 3 || got[0].Variable != "LOCATION" {
		t.Errorf("requested: %v", summaries(got))
	}
}
