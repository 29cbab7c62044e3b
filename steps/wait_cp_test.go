package steps

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/talos"
)

func TestProgressSaysWhatIsMissing(t *testing.T) {
	up := serverProgress{name: "a", made: true, state: "running", node: talos.Node{Healthy: true}}
	silent := serverProgress{name: "b", made: true, state: "running", talos: errors.New("connection refused")}
	booting := serverProgress{name: "c", made: true, state: "starting", trouble: "InstanceReady: ServerStarting", talos: errors.New("not asked yet")}
	refused := serverProgress{name: "d", trouble: "ServerCreateSucceeded: ServerTypeUnavailable (cx33 is out of stock in nbg1)", talos: errors.New("not asked yet")}
	for name, tt := range map[string]struct {
		p    progress
		want []string
		not  []string
	}{
		"nothing there":      {progress{want: 3, api: "no kubeconfig"}, []string{"of 3 servers 0 made", "API: no kubeconfig"}, nil},
		"out of stock":       {progress{want: 3, servers: []serverProgress{up, booting, refused}, api: "connection refused"}, []string{"2 made, 1 running", "d: ServerCreateSucceeded", "out of stock in nbg1", "c: InstanceReady"}, []string{"not asked"}},
		"Talos silent":       {progress{want: 2, servers: []serverProgress{up, silent}, api: "connection refused"}, []string{"2 running, Talos answers on 1, etcd on 1", "b: connection refused"}, nil},
		"provider is behind": {progress{want: 1, servers: []serverProgress{up}}, []string{"the API answers", "provider has not seen it"}, nil},
		"API flaps":          {progress{want: 1, servers: []serverProgress{up}, initialized: true, api: "EOF"}, []string{"API: EOF"}, nil},
		"there":              {progress{want: 1, servers: []serverProgress{up}, initialized: true}, nil, nil},
		"one server less":    {progress{want: 3, servers: []serverProgress{up}, initialized: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.p.missing()
			if (got == "") != (len(tt.want) == 0) {
				t.Fatalf("missing %q", got)
			}
			for _, part := range tt.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
			for _, part := range tt.not {
				if strings.Contains(got, part) {
					t.Errorf("%q says %q", got, part)
				}
			}
		})
	}
}

func TestTroubles(t *testing.T) {
	o := kubetest.Object(caph, "HCloudMachine", Namespace, "x", object{"status": object{"conditions": []any{
		object{"type": "Ready", "status": "False", "reason": "ImageNotFound"},
		object{"type": "ServerCreateSucceeded", "status": "False", "reason": "ImageNotFound", "message": "no such image"},
		object{"type": "HetznerAPIReachable", "status": "True"},
	}}})
	if got := troubles(o); got != "ServerCreateSucceeded: ImageNotFound (no such image)" {
		t.Errorf("got %q", got)
	}
}
