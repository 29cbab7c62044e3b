package effect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"k8s-control-plane-x7f2k":                                     "k8s-control-plane-*",
		"secrets/default/k8s-control-plane-6f4dm-bootstrap":           "secrets/default/k8s-control-plane-*-bootstrap",
		"pivot/machine.cluster.x-k8s.io_k8s-control-plane-b2xkq.json": "pivot/machine.cluster.x-k8s.io_k8s-control-plane-*.json",
		"ssh_keys/hcloud-upload-image-1c0ffee2":                       "ssh_keys/hcloud-upload-image-*",
		"a/0f8fad5b-d9cb-469f-a165-70867728950e":                      "a/*",
		// a time has letters of its own
		"journal.destroyed-20261121T101500Z.json": "journal.destroyed-20261121T101500Z.json",
		"127.0.0.9:6443":                   "*:*",
		"cilium-operator":                  "cilium-operator",
		"sh.helm.release.v1.hcloud-ccm.v1": "sh.helm.release.v1.hcloud-ccm.v1",
		"hetznerclusters.infrastructure.cluster.x-k8s.io/default/k8s": "hetznerclusters.infrastructure.cluster.x-k8s.io/default/k8s",
		"two words": "two_words",
	} {
		if got := Plain(name); got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
}

func TestHetznerCall(t *testing.T) {
	for request, want := range map[string]string{
		`POST /v1/firewalls {"name":"k8s"}`:                       "create firewalls/k8s",
		`POST /v1/firewalls/42/actions/set_rules {"rules":[]}`:    "set_rules firewalls/*",
		`DELETE /v1/servers/4711`:                                 "delete servers/*",
		`DELETE /v1/placement_groups/4711`:                        "delete placement_groups/*",
		`DELETE /v1/placement_groups/0`:                           "", // the question whether the token may write
		`PUT /v1/load_balancers/7 {"labels":{}}`:                  "update load_balancers/*",
		`POST /v1/servers/1/actions/create_image {"name":"x"}`:    "create_image servers/*",
		`POST /proxied/v1/ssh_keys {"name":"k","public_key":"p"}`: "create ssh_keys/k",
	} {
		verb, object, ok := HetznerCall(parse(t, request, ""))
		if got := strings.TrimSpace(verb + " " + object); got != want || ok != (want != "") {
			t.Errorf("%s is %q (%v), not %q", request, got, ok, want)
		}
	}
}

func TestKubernetesCall(t *testing.T) {
	for request, want := range map[string]string{
		`PATCH /apis/cluster.x-k8s.io/v1beta1/namespaces/default/clusters/k8s apply`:                      "apply clusters.cluster.x-k8s.io/default/k8s",
		`PATCH /apis/cluster.x-k8s.io/v1beta1/namespaces/default/clusters/k8s?fieldManager=slipway apply`: "apply clusters.cluster.x-k8s.io/default/k8s",
		`PATCH /api/v1/namespaces/default/secrets/hetzner merge`:                                          "patch secrets/default/hetzner",
		`POST /api/v1/namespaces {"metadata":{"name":"capi-system"}}`:                                     "create namespaces/capi-system",
		`PUT /api/v1/namespaces/capi-system {}`:                                                           "update namespaces/capi-system",
		`PUT /api/v1/namespaces/capi-system/finalize {}`:                                                  "update namespaces/capi-system/finalize",
		`POST /rancher/k8s/apis/apps/v1/namespaces/a/deployments {"metadata":{"name":"b"}}`:               "create deployments.apps/a/b",
		`POST /api/v1/namespaces/a/pods {"metadata":{"generateName":"b-"}}`:                               "create pods/a/b-*",
		`DELETE /apis/cluster.x-k8s.io/v1beta1/namespaces/default/machines/k8s-control-plane-x7f2k`:       "delete machines.cluster.x-k8s.io/default/k8s-control-plane-x7f2k",
		`DELETE /api/v1/namespaces/a/secrets`:                                                             "deletecollection secrets/a",
		`PATCH /apis/apps/v1/namespaces/a/deployments/b/status merge`:                                     "patch deployments.apps/a/b/status",
		`PATCH /api/v1/namespaces/a/secrets/b?dryRun=All apply`:                                           "",
		`POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews {}`:                                  "",
		`PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b {}`:                                       "",
		`POST /readyz {}`: "",
	} {
		verb, object, ok := KubernetesCall(parse(t, request, map[bool]string{true: "application/apply-patch+yaml",
			false: "application/merge-patch+json"}[strings.HasSuffix(request, "apply")]))
		if got := strings.TrimSpace(verb + " " + object); got != want || ok != (want != "") {
			t.Errorf("%s is %q (%v), not %q", request, got, ok, want)
		}
	}
}

func parse(t *testing.T, request, contentType string) *http.Request {
	t.Helper()
	words := strings.SplitN(request, " ", 3)
	var body string
	if len(words) > 2 {
		body = words[2]
	}
	r, err := http.NewRequest(words[0], "https://127.0.0.1"+words[1], strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	return r
}

// client-go sends built-in objects as protobuf where it is configured to, as controller-runtime configures it.
func TestKubernetesCallReadsProtobuf(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	lines := &kept{}
	recorder := New(Options{Lines: lines})
	config := &rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return recorder.Transport(next, Management, KubernetesCall)
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hetzner"},
		StringData: map[string]string{"hcloud": planted}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err == nil {
		t.Fatal("it should be refused")
	}
	got := lines.read(t)
	if len(got) != 2 || got[0].Key() != "management create secrets/default/hetzner#1" || got[1].Phase != Failed ||
		got[1].Error != "409 Conflict" {
		t.Errorf("got %+v", got)
	}
}

func TestTalosCall(t *testing.T) {
	for method, want := range map[string]bool{
		"/machine.MachineService/Version": false, "/machine.MachineService/EtcdSnapshot": false,
		"/cosi.resource.State/Get":          false,
		"/machine.MachineService/Bootstrap": true, "/machine.MachineService/EtcdRecover": true,
		"/machine.MachineService/SomethingNew": true,
	} {
		if _, _, ok := TalosCall(method); ok != want {
			t.Errorf("%s is an effect: %v", method, ok)
		}
	}
}
