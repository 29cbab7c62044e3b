package upgrade

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// versionsOf is a version set with other values in some places.
func versionsOf(set string, values ...string) Versions {
	s, _ := config.Shipped().Set(set)
	versions := Versions{}
	for name, version := range s.Versions {
		versions[name] = version
	}
	for _, v := range values {
		name, version, _ := strings.Cut(v, "=")
		versions[name] = version
	}
	return versions
}

func TestStages(t *testing.T) {
	for name, tt := range map[string]struct {
		request request
		want    []string // stages with their changes of Talos and Kubernetes
		refused string
	}{
		"nothing": {request: request{from: versionsOf("guide"), to: versionsOf("guide")}},
		"nothing but Cilium, which was not finished": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide"), held: true}, want: []string{"cilium"}},
		"a Cilium that was not finished comes before servers are replaced": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4"), held: true},
			want:    []string{"cilium", "kubernetes-1-33-4 v1.32.2→v1.33.4"}},
		"guide to current": {
			request: request{from: versionsOf("guide"), to: versionsOf("current"), workers: []string{"replaces 2"}},
			// Cilium 1.18 is tested with Kubernetes up to 1.33 and 1.19 from 1.32 on, the Hetzner CCM 1.29 up to 1.34 and
			// 1.39 from 1.33 on.
			want: []string{"providers", "image", "talos v1.12.2→v1.13.9", "kubernetes-1-33-13 v1.32.2→v1.33.13", "cilium",
				"kubernetes-1-34-9 v1.33.13→v1.34.9", "hcloud-ccm", "kubernetes-1-35-4 v1.34.9→v1.35.4", "workers"}},
		"workers that the new API servers support": {
			request: request{from: versionsOf("guide"), to: versionsOf("2026-11"), kubelets: "v1.32.2"},
			want: []string{"providers", "image", "talos v1.12.2→v1.13.9", "kubernetes-1-33-13 v1.32.2→v1.33.13", "cilium",
				"kubernetes-1-34-9 v1.33.13→v1.34.9", "hcloud-ccm", "kubernetes-1-35-4 v1.34.9→v1.35.4"}},
		"workers that the new API servers do not support": {
			request: request{from: versionsOf("guide"), to: versionsOf("2026-11", "KUBERNETES_VERSION=v1.36.1"),
				kubelets: "v1.32.2"},
			refused: "upgrade to the newest v1.35 first (KUBERNETES_VERSION), which replaces the workers of configured pools too"},
		"guide to the set before it": {
			request: request{from: versionsOf("guide"), to: versionsOf("2026-09")},
			want: []string{"providers", "image", "talos v1.12.2→v1.13.9", "kubernetes-1-33-13 v1.32.2→v1.33.13", "cilium",
				"hcloud-ccm"}},
		"the core, three minors": {
			request: request{from: versionsOf("guide", "CAPI_VERSION=v1.10.2"),
				to: versionsOf("guide", "CAPI_VERSION=v1.13.6", "CAPH_VERSION=v1.1.8")},
			want: []string{"providers"}},
		"the core, four minors": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "CAPI_VERSION=v1.14.3")},
			refused: "upgrade to the newest 1.13 first (CAPI_VERSION)"},
		"one minor after another": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.30.2"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4")},
			want: []string{"kubernetes-1-31-14 v1.30.2→v1.31.14", "kubernetes-1-32-13 v1.31.14→v1.32.13",
				"kubernetes-1-33-4 v1.32.13→v1.33.4"}},
		"by named releases": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.31.2"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4"), via: map[uint64]string{32: "v1.32.9"}},
			want: []string{"kubernetes-1-32-9 v1.31.2→v1.32.9", "kubernetes-1-33-4 v1.32.9→v1.33.4"}},
		"a minor that is not known": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.37.2", "TALOS_VERSION=v1.14.6"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.39.1", "TALOS_VERSION=v1.14.6")},
			refused: "--via v1.38.0"},
		"a Talos that nothing is known of": {
			request: request{from: versionsOf("guide", "TALOS_VERSION=v1.15.0"),
				to: versionsOf("guide", "TALOS_VERSION=v1.15.0", "KUBERNETES_VERSION=v1.33.4")},
			want: []string{"kubernetes-1-33-4 v1.32.2→v1.33.4"}},
		// Talos 1.11 runs 1.29 to 1.34, 1.12 runs 1.30 to 1.35.
		"Kubernetes first where the new Talos does not run the old one": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.29.3", "TALOS_VERSION=v1.11.2"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.31.5")},
			want: []string{"kubernetes-1-30-14 v1.29.3→v1.30.14", "image", "talos v1.11.2→v1.12.2",
				"kubernetes-1-31-5 v1.30.14→v1.31.5"}},
		"Talos is too old": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.34.3", "TALOS_VERSION=v1.11.2"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.35.1", "TALOS_VERSION=v1.11.2")},
			refused: "Kubernetes v1.35.1 does not run on Talos v1.11.2"},
		"Talos skips a minor": {
			request: request{from: versionsOf("guide", "TALOS_VERSION=v1.11.2"), to: versionsOf("guide", "TALOS_VERSION=v1.13.9")},
			refused: "skips a minor version, which Talos does not support"},
		"Talos in place": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "TALOS_VERSION=v1.12.5"), inPlace: true},
			want:    []string{"image", "talos v1.12.2→v1.12.5"}},
		"another minor of Talos in place": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "TALOS_VERSION=v1.13.9"), inPlace: true},
			refused: "is another minor version, whose machine configuration"},
		"an image of one's own in place": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "TALOS_VERSION=v1.12.5"), inPlace: true,
				image: "mine"},
			refused: "IMAGE_NAME=mine is an image of your own"},
		"a downgrade": {
			request: request{from: versionsOf("current"), to: versionsOf("guide")},
			refused: "Kubernetes of the cluster v1.35.4 → v1.32.2 would be a downgrade"},
		"in the middle of another": {
			request: request{from: versionsOf("guide", "KUBERNETES_VERSION=v1.31.2"),
				to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4"), rolling: "v1.32.5"},
			want: []string{"kubernetes-1-32-5 v1.31.2→v1.32.5", "kubernetes-1-33-4 v1.32.5→v1.33.4"}},
		"in the middle of the same": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4"), rolling: "v1.33.4"},
			want:    []string{"kubernetes-1-33-4 v1.32.2→v1.33.4"}},
		"back in the middle": {
			request: request{from: versionsOf("guide"), to: versionsOf("guide", "KUBERNETES_VERSION=v1.33.4"), rolling: "v1.33.9"},
			refused: "being replaced by those of Kubernetes v1.33.9"},
		"Cilium skips a minor": {
			request: request{from: versionsOf("guide", "CILIUM_VERSION=1.16.4"), to: versionsOf("guide")},
			refused: "which Cilium does not support: upgrade to the newest 1.17 first"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.request.replicas, tt.request.table = 3, config.Shipped()
			stages, err := tt.request.plan()
			if tt.refused != "" {
				var refused *RefusedError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.refused) || len(stages) > 0 {
					t.Fatalf("%v, %v", stages, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var is []string
			for _, s := range stages {
				line := s.Name
				for _, c := range s.Changes {
					if c.Variable == talos || c.Variable == kubernetes {
						line += fmt.Sprintf(" %s→%s", c.From, c.To)
					}
				}
				if s.Back == "" || s.Does == "" {
					t.Errorf("%s does not say what it does and how it is undone", s.Name)
				}
				is = append(is, line)
			}
			if !slices.Equal(is, tt.want) {
				t.Errorf("got  %q\nwant %q", is, tt.want)
			}
		})
	}
}

// TestControlPlaneProviderFirst: CACPPT v0.5.12, of the set guide, may never end to replace servers
// (cluster-api-control-plane-provider-talos#237), so that the newer one is there before anything else is done.
func TestControlPlaneProviderFirst(t *testing.T) {
	for _, set := range []string{"2026-09", "2026-11"} {
		r := request{from: versionsOf("guide"), to: versionsOf(set), replicas: 3, table: config.Shipped(),
			workers: []string{"replaces 2"}}
		stages, err := r.plan()
		if err != nil {
			t.Fatal(set, err)
		}
		if !slices.Contains(stages[0].Changes, Change{"CACPPT_VERSION", "v0.5.12", "v0.5.13"}) {
			t.Errorf("%s: the first stage is %v", set, stages[0])
		}
		cfg := config.Defaults()
		clustertest.Configure(t, &cfg, "WORKERS=1")
		for name, version := range r.to {
			clustertest.Configure(t, &cfg, name+"="+version)
		}
		plan, err := NewPlan(cfg, clustertest.New(t).Tools(), Examination{Stages: stages, Replicas: 3})
		if err != nil {
			t.Fatal(set, err)
		}
		later := []string{StageProviders}
		for _, s := range plan.Graph.Steps() {
			if slices.ContainsFunc(s.Behind, func(l flow.Link) bool { return slices.Contains(later, l.Step) }) {
				later = append(later, s.Name)
			} else if s.Name != StageProviders {
				t.Errorf("%s: step %s does not come after %s", set, s.Name, StageProviders)
			}
		}
	}
}

func TestVia(t *testing.T) {
	if via, err := viaOf([]string{"v1.32.9"}); err != nil || via[32] != "v1.32.9" {
		t.Errorf("%v, %v", via, err)
	}
	for _, wrong := range [][]string{{"1.32.9"}, {"v1.32"}, {"v2.0.0"}, {"x"}, {"v1.32.9", "v1.32.8"}} {
		if via, err := viaOf(wrong); err == nil {
			t.Errorf("%v is taken for %v", wrong, via)
		}
	}
}
