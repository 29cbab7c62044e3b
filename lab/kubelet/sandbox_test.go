package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// apartVar has the test binary run its tests in a network of its own, as the lab does.
const apartVar = "KUBELET_TEST_APART"

// ownNetwork says whether that was possible.
var ownNetwork bool

func runApart(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	code := 0
	err := netns.Enter(ctx, nil, func(_ context.Context, n netns.Network) error {
		ownNetwork = n.Own()
		if code = m.Run(); code != 0 {
			return fmt.Errorf("the tests ended with code %d", code)
		}
		return nil
	})
	if err != nil {
		return 1
	}
	return code
}

// apart runs the calling test again, in a network of its own; true says that this is that run.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apartVar) != "" {
		if !ownNetwork {
			t.Skip("the system refuses namespaces")
		}
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), apartVar+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip(string(out))
	}
	return false
}

// runtimeOfTests is one for all: there is one in a network.
var runtimeOfTests = sync.OnceValues(sandbox.New)

// fixedPort is a port that the Pods' program has in its container's arguments, not by a placeholder.
const fixedPort = 9443

func fixedPod(name string) *corev1.Pod {
	pod := newTestPod(name, served+":v1")
	probe := func(host string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(fixedPort), Host: host},
		}}
	}
	main := &pod.Spec.Containers[0]
	main.Args = []string{fmt.Sprintf("-address=:%d", fixedPort), "-append=/tmp/says", "-say=" + name}
	main.ReadinessProbe, main.StartupProbe = probe(""), probe("127.0.0.1")
	return pod
}

// askPod returns the answer of a Pod's process at its fixed port.
func askPod(t *testing.T, w *harness, pod, path string, query ...string) string {
	t.Helper()
	addr, ok := w.cfg.Registry.Address("test", "default", pod, fixedPort)
	if !ok {
		t.Fatalf("Pod %s has no address", pod)
	}
	target := url.URL{Scheme: "http", Host: addr, Path: path}
	if len(query) == 2 {
		target.RawQuery = url.Values{query[0]: {query[1]}}.Encode()
	}
	text, err := get(target.String())
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}

// TestPodsApart runs one program twice, which has a fixed port and reads fixed paths, and on the host's network.
func TestPodsApart(t *testing.T) {
	if !apart(t) {
		return
	}
	sandboxes, err := runtimeOfTests()
	if err != nil {
		t.Fatal(err)
	}
	api, err := net.Listen("tcp4", "127.64.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "the API")
	})}
	go func() { _ = server.Serve(api) }()
	t.Cleanup(func() { server.Close() })
	local := netip.MustParseAddrPort(api.Addr().String())

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "talos", Namespace: "default"},
		Data: map[string][]byte{"config": []byte("a talosconfig")}}
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: "default"},
		Data: map[string]string{"ca.crt": "the authority"}}
	operators := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(operators, []byte("a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := NewRegistry()
	onNode := func(name string) *harness {
		return start(t, func(c *Config) {
			program := player(t, served)
			program.Env = map[string]string{"REACHED_AT": fmt.Sprintf("{reach:%d}", fixedPort)}
			c.Programs = []Program{program}
			c.InternalIP = "127.64.0.8"
			c.Node, c.Sandboxes, c.Registry, c.LocalAPI = name, sandboxes, registry, local
			c.PodServer = "https://127.65.2.1:6443"
			c.Metadata = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, r.URL.Path) })
		}, secret, root)
	}
	w := onNode("node-1")
	for _, name := range []string{"one", "two"} {
		pod := fixedPod(name)
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "talos", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "talos"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "temporary", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}},
			serviceAccountVolume(),
		}
		main := &pod.Spec.Containers[0]
		main.Args[1] = "-append=/var/scratch/says"
		main.VolumeMounts = []corev1.VolumeMount{
			{Name: "talos", MountPath: "/var/run/secrets/talos.dev"}, {Name: "scratch", MountPath: "/var/scratch"},
			{Name: "host", MountPath: "/etc/of-the-host"},
			{Name: "temporary", MountPath: "/tmp"}, // above the lab's folder
			{Name: "account", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		}
		w.create(pod)
	}
	for _, name := range []string{"one", "two"} {
		w.awaitReady(name)
		const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
		for path, want := range map[string]string{
			"/var/run/secrets/talos.dev/config": "a talosconfig", account + "ca.crt": "the authority",
			account + "namespace": "default", "/var/scratch/says": name + "\n", "/etc/hostname": "",
			"/proc/sys/kernel/hostname": name + "\n",
		} {
			got := askPod(t, w, name, "/read", "path", path)
			if want != "" && got != want || strings.HasPrefix(got, "error: ") {
				t.Errorf("%s reads %q at %s, want %q", name, got, path, want)
			}
		}
		for _, path := range []string{operators, w.hostsFile(), "/proc/1/root" + operators, "/proc/1/environ"} {
			if got := askPod(t, w, name, "/read", "path", path); !strings.HasPrefix(got, "error: ") {
				t.Errorf("%s reads %s", name, path)
			}
		}
		if token := askPod(t, w, name, "/read", "path", account+"token"); !strings.HasPrefix(token, "token-") {
			t.Errorf("%s has the token %q", name, token)
		}
		if got := askPod(t, w, name, "/fetch", "url", "http://169.254.169.254/hetzner"); got != "node-1/hetzner" {
			t.Errorf("%s gets the metadata %q", name, got)
		}
		if got := askPod(t, w, name, "/fetch", "url", "http://"+local.String()); got != "the API" {
			t.Errorf("%s gets from the lab %q", name, got)
		}
		if got := askPod(t, w, name, "/fetch", "url", fmt.Sprintf("http://127.0.0.1:%d", local.Port())); got == "the API" {
			t.Errorf("%s reaches the lab at its own loopback", name)
		}
		var g given
		if err := json.Unmarshal([]byte(askPod(t, w, name, "/self")), &g); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"KUBERNETES_SERVICE_HOST=127.65.2.1", "KUBERNETES_SERVICE_PORT=6443"} {
			if !slices.Contains(g.Env, want) {
				t.Errorf("environment %q lacks %q", g.Env, want)
			}
		}
		if slices.ContainsFunc(g.Env, func(e string) bool {
			return strings.HasPrefix(e, "KUBECONFIG=") || strings.HasPrefix(e, "TMPDIR=")
		}) {
			t.Errorf("environment %q is not a container's", g.Env)
		}
	}

	// A Pod reaches another one's port by the Node's address, and in no other way.
	var one given
	if err := json.Unmarshal([]byte(askPod(t, w, "one", "/self")), &one); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(one.Env, func(e string) bool { return strings.HasPrefix(e, "REACHED_AT=127.64.0.8:") })
	if at < 0 {
		t.Fatalf("the environment %q does not say where the Pod is reached", one.Env)
	}
	reached := strings.TrimPrefix(one.Env[at], "REACHED_AT=")
	const name = "/read?path=/proc/sys/kernel/hostname"
	if got := askPod(t, w, "two", "/fetch", "url", "http://"+reached+name); got != "one\n" {
		t.Errorf("the other Pod gets %q at %s", got, reached)
	}
	own, _ := registry.Address("test", "default", "one", fixedPort)
	if got := askPod(t, w, "two", "/fetch", "url", "http://"+own+name); got == "one\n" {
		t.Errorf("the other Pod reaches %s", own)
	}

	// On the host's network: one port for a Node, whatever the Pod, and each Node has its own.
	other := onNode("node-2")
	for i, node := range []*harness{w, other} {
		pod := fixedPod(fmt.Sprint("host-", i+1))
		pod.Spec.NodeName, pod.Spec.HostNetwork = node.cfg.Node, true
		node.create(pod)
		node.awaitReady(pod.Name)
		if got := askPod(t, node, pod.Name, "/fetch", "url", "http://169.254.169.254/"); got != node.cfg.Node+"/" {
			t.Errorf("%s gets the metadata %q", pod.Name, got)
		}
		at := fmt.Sprintf("http://127.0.0.1:%d", local.Port())
		if got := askPod(t, node, pod.Name, "/fetch", "url", at); got != "the API" {
			t.Errorf("%s gets from the API at its loopback %q", pod.Name, got)
		}
	}
	late := fixedPod("late")
	late.Spec.HostNetwork, late.Spec.RestartPolicy = true, corev1.RestartPolicyNever
	w.create(late)
	w.awaitPod("late", "a port of the host's network is taken",
		func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })

	// The address goes with the Pod.
	w.markDeleted("one", 1)
	eventually(t, "the Pod's address is gone", func() (string, bool) {
		addr, ok := registry.Address("test", "default", "one", fixedPort)
		return addr, !ok
	})
	eventually(t, "nothing listens for the Pod on its Node", func() (string, bool) {
		conn, err := net.Dial("tcp4", reached)
		if err == nil {
			conn.Close()
		}
		return reached, err != nil
	})
}

// serviceAccountVolume is the one that the ServiceAccount admission plugin adds.
func serviceAccountVolume() corev1.Volume {
	return corev1.Volume{Name: "account", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(3607))}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}
