package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// recordVariable names the folder into which TestRecordSituations writes: internal/cluster/why/testdata, made absolute.
const recordVariable = "SLIPWAY_RECORD_SITUATIONS"

var (
	capiCluster    = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"}
	hetznerCluster = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HetznerCluster"}
	hcloudMachine = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HCloudMachine"}
)

// recorder creates situations in one lab, one after another, and records what a wait would observe.
type recorder struct {
	*command
	project
	t        *testing.T
	dir      string
	mgmt     *kube.Cluster
	observer *situation.Observer
	left     int // looks at a changed annotation
}

// TestRecordSituations records the situations behind the sentences of docs/waiting.md. It is not run by default: its
// output is checked in, and other tests use that.
func TestRecordSituations(t *testing.T) {
	dir := os.Getenv(recordVariable)
	if dir == "" {
		t.Skip("records only where " + recordVariable + " says where to")
	}
	c := newCommand(t)
	c.env = append(c.env, "CONTROL_PLANE_ENDPOINT=load-balancer") // so that CAPH creates it, or says why not
	if o := c.run(nil, "--lab", "capi-init", "secret", "image"); o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	config := must(os.ReadFile(filepath.Join(c.state, "management.kubeconfig")))(t)
	r := &recorder{command: c, project: c.project(), t: t, dir: dir, mgmt: must(kube.Connect(config))(t)}
	r.observer = r.makeObserver()
	r.beforeServers(r.beforeLoadBalancer())
	r.beforeAPI()
	r.beforeNodes()
	r.withNodes()
}

func (r *recorder) makeObserver() *situation.Observer {
	var info struct{ NetworkCIDR string }
	r.labGet("/v1/info", &info)
	cfg := config.Defaults()
	cfg.NetworkCIDR = info.NetworkCIDR
	tools := platform.Tools{Files: platform.FilesIn(r.state), Hetzner: r.Client}.WithDefaults()
	sources := must(render.Read(render.VariablesOf(cfg), ""))(r.t)
	return &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources, Began: time.Now()}
}

// look is the situation that a wait would observe.
func (r *recorder) look(ctx context.Context) why.Situation {
	s, _ := r.observer.Observe(ctx, r.mgmt, situation.WatchedOf(r.observer.Cfg))
	return s
}

// record makes CAPH reconcile until a situation, or its sentence, shows its subject, and records it.
func (r *recorder) record(name string, shows ...string) {
	r.t.Helper()
	r.take(name, r.reconcileNow, shows)
}

// recordQuietly is record without making CAPH reconcile, which would repair the situation.
func (r *recorder) recordQuietly(name string, shows ...string) {
	r.t.Helper()
	r.take(name, func() {}, shows)
}

func (r *recorder) take(name string, reconcile func(), shows []string) {
	r.t.Helper()
	began := time.Now()
	for {
		reconcile()
		s := r.look(r.t.Context())
		text, err := yaml.Marshal(s)
		if err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		if all(string(text)+why.Explain(s).Sentence(), shows) {
			if err := os.WriteFile(filepath.Join(r.dir, name+".yaml"), text, 0o644); err != nil {
				r.t.Fatal(err)
			}
			r.t.Logf("%-24s after %4.1fs: %s", name, time.Since(began).Seconds(), why.Explain(s).Sentence())
			return
		}
		if time.Since(began) > 40*time.Second {
			r.t.Errorf("%s: nothing shows %q: %s", name, shows, why.Explain(s).Sentence())
			_ = os.WriteFile(filepath.Join(os.TempDir(), "not-"+name+".yaml"), text, 0o644)
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func all(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// reconcileNow makes CAPH reconcile its objects now: its own intervals grow.
func (r *recorder) reconcileNow() {
	r.left++
	for _, kind := range []schema.GroupVersionKind{hetznerCluster, hcloudMachine} {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
		if r.mgmt.List(ctx, l, client.InNamespace("default")) == nil {
			for i := range l.Items {
				change := fmt.Sprintf(`{"metadata":{"annotations":{"recorder/looks":"%d"}}}`, r.left)
				_ = r.mgmt.Patch(ctx, &l.Items[i], client.RawPatch("application/merge-patch+json", []byte(change)))
			}
		}
		cancel()
	}
}

// fault injects a fault; the returned function ends it.
func (r *recorder) fault(words ...string) (end func()) {
	r.t.Helper()
	id := strings.TrimSuffix(strings.Fields(r.lab(append([]string{"fault", "add"}, words...)...))[1], ":")
	return func() { r.t.Helper(); r.lab("fault", "remove", id) }
}

// during records one situation during a fault.
func (r *recorder) during(name, shows string, words ...string) {
	r.t.Helper()
	end := r.fault(words...)
	r.record(name, shows)
	end()
}

// begin runs the command beside the recorder; the returned function interrupts it.
func (r *recorder) begin(targets ...string) (end func()) {
	cmd := r.cmd(context.Background(), append([]string{"--lab", "--yes"}, targets...)...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
}

const caphActor = "actor=cluster-api-provider-hetzner"

// beforeLoadBalancer records what blocks the cluster's network and load balancer. Servers are out of stock until the
// returned function is called.
func (r *recorder) beforeLoadBalancer() (restock func()) {
	refused := r.fault("error", "status=401", "code=unauthorized", "message=unable to authenticate", caphActor)
	end := r.begin("apply")
	r.record("token-refused", "NetworkReconcileFailed", "(unauthorized, ")
	away := r.fault("error", "status=503", "code=unavailable", "message=service unavailable", "method=POST",
		"path=/networks", caphActor)
	refused()
	r.record("network-unavailable", "NetworkReconcileFailed", "service unavailable (unavailable")
	limit := r.fault("error", "status=403", "code=resource_limit_exceeded", "message=load balancer limit exceeded",
		"method=POST", "path=/load_balancers", caphActor)
	away()
	r.record("load-balancer-limit", "LoadBalancerCreateFailed", "load balancer limit")
	stock := r.fault("error", "status=412", "code=resource_unavailable", "message=load balancer type unavailable",
		"method=POST", "path=/load_balancers", caphActor)
	limit()
	r.record("load-balancer-stock", "LoadBalancerCreateFailed", "load balancer type unavailable")
	patch(r.t, r.mgmt, capiCluster, "k8s", `{"spec":{"paused":true}}`)
	r.record("paused", "paused: true")
	patch(r.t, r.mgmt, capiCluster, "k8s", `{"spec":{"paused":false}}`)
	patch(r.t, r.mgmt, hetznerCluster, "k8s", `{"spec":{"hetznerSecretRef":{"name":"elsewhere"}}}`)
	r.record("secret-missing", "HetznerSecretUnreachable")
	patch(r.t, r.mgmt, hetznerCluster, "k8s", `{"spec":{"hetznerSecretRef":{"name":"hetzner"}}}`)
	end()
	restock = r.fault("out-of-stock")
	stock()
	if o := r.run(nil, "--lab", "--yes", "apply"); o.exit != 0 {
		r.t.Fatalf("apply: exit %d\n%s", o.exit, o.end())
	}
	r.record("out-of-stock", "resource_unavailable")
	return restock
}

// beforeServers records what blocks the creation of servers.
func (r *recorder) beforeServers(restock func()) {
	blocked := r.fault("error", "status=409", "code=placement_error", "message=error during placement", "method=POST",
		"path=/servers", caphActor)
	restock()
	r.record("placement", "placement_error")
	next := func(name string, shows string, words ...string) {
		r.t.Helper()
		end := r.fault(words...)
		blocked()
		blocked = end
		r.record(name, shows)
	}
	next("server-limit", "ServerLimitExceeded", "error", "status=403", "code=resource_limit_exceeded",
		"message=server limit exceeded", "method=POST", "path=/servers", caphActor)
	next("hetzner-unavailable", "503", "error", "status=503", "code=unavailable", "message=503 service unavailable",
		"method=POST", "path=/servers", caphActor)
	next("order-refused", "invalid input in field", "error", "status=422", "code=invalid_input",
		"message=invalid input in field 'user_data'", "method=POST", "path=/servers", caphActor)
	image := r.talosSnapshots(r.t)[0]
	relabel := func(name string) {
		must(first(r.Image.Update(r.t.Context(), image,
			hcloud.ImageUpdateOpts{Labels: map[string]string{"caph-image-name": name, "os": "talos"}})))(r.t)
	}
	name := image.Labels["caph-image-name"]
	relabel("elsewhere")
	r.record("image-unknown", "ImageNotFound", "found: 0")
	relabel(name)
	r.recordQuietly("image-found-again", "ImageNotFound", "found: 1")
	second := r.secondImage(name)
	r.record("image-ambiguous", "ImageAmbiguous")
	must(r.Image.Delete(r.t.Context(), second))(r.t)
	next("rate-limit", "RateLimitExceeded", "rate-limit", "path=/servers", caphActor)
	end := r.fault("out-of-stock", "serverType=cx33", "location=nbg1", "skip=2")
	blocked()
	r.record("one-out-of-stock", "status: running", "resource_unavailable")
	end()
}

// settle waits until no wait is left.
func (r *recorder) settle() {
	r.t.Helper()
	eventually(r.t, "a cluster that is whole", time.Minute, func(ctx context.Context) string {
		r.reconcileNow()
		return why.Explain(r.look(ctx)).Sentence()
	})
}

// secondImage creates another image of the same name, from a server that does not belong to the cluster.
func (r *recorder) secondImage(name string) *hcloud.Image {
	ctx := r.t.Context()
	made := must(first(r.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "somebody", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "nbg1"},
	})))(r.t)
	if err := r.Action.WaitFor(ctx, append(made.NextActions, made.Action)...); err != nil {
		r.t.Fatal(err)
	}
	image := must(first(r.Server.CreateImage(ctx, made.Server, &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: hcloud.Ptr("by hand"), Labels: map[string]string{"caph-image-name": name,
			"os": "talos"},
	})))(r.t)
	if err := r.Action.WaitFor(ctx, image.Action); err != nil {
		r.t.Fatal(err)
	}
	must(first(r.Server.DeleteWithResult(ctx, made.Server)))(r.t)
	return image.Image
}

// beforeAPI records servers that do not start, and an API that does not answer.
func (r *recorder) beforeAPI() {
	for _, s := range r.clusterServers(r.t) {
		must(first(r.Server.Poweroff(r.t.Context(), s)))(r.t)
	}
	r.recordQuietly("server-off", `status: "off"`)
	r.record("all-run", "initialized: true", "not Ready")
	r.fault("apiserver-restart", "cluster=k8s", "for=20s") // it ends by itself
	r.record("api-away", "\napi: ")
	r.during("management-away", "management:", "management-away")
	r.during("hetzner-away", "hetzner:", "error", "status=503", "code=unavailable", "message=service unavailable",
		"path=/servers", "actor=hcloud-go")
}

// beforeNodes records nodes that are not Ready yet.
func (r *recorder) beforeNodes() {
	r.ok("wait-cp", "kubeconfig")
	r.ok("cilium")
	r.record("uninitialized", "uninitialized")
	r.ok("bootstrap")
	r.record("well", "ready: true")
}

func (r *recorder) ok(targets ...string) {
	r.t.Helper()
	if o := r.run(nil, append([]string{"--lab", "--yes"}, targets...)...); o.exit != 0 {
		r.t.Fatalf("%v: exit %d\n%s", targets, o.exit, o.end())
	}
}

// withNodes records failures of a complete cluster.
func (r *recorder) withNodes() {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "too-large"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "too-large"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "too-large"}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"kubernetes.io/hostname": "nowhere"},
					Containers:   []corev1.Container{{Name: "one", Image: "example.org/one"}},
				},
			},
		},
	}
	deployments := clientOf(r.t, filepath.Join(r.state, "kubeconfig")).AppsV1().Deployments("kube-system")
	must(deployments.Create(r.t.Context(), deployment, metav1.CreateOptions{}))(r.t)
	r.record("pod-without-node", "is not scheduled")
	if err := deployments.Delete(r.t.Context(), "too-large", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	away := r.fault("error", "status=503", "code=unavailable", "message=service unavailable", "method=POST",
		"path=/load_balancers/*/actions/add_target", caphActor)
	patch(r.t, r.mgmt, talosControlPlane, "k8s-control-plane", `{"spec":{"replicas":4}}`)
	r.record("balancer-refuses-target", "LoadBalancerAttachFailed")
	away()
	r.settle()
	slow := r.fault("slow-boot", "delay=15s")
	patch(r.t, r.mgmt, talosControlPlane, "k8s-control-plane", `{"spec":{"replicas":5}}`)
	r.record("slow-boot", "trouble: ")
	slow()
	r.settle()
	r.lab("fault", "add", "vanish-server", "server=k8s-control-plane-*", "seed=3")
	r.recordQuietly("vanished", "gone from the Hetzner project")
	patch(r.t, r.mgmt, talosControlPlane, "k8s-control-plane",
		`{"spec":{"controlPlaneConfig":{"controlplane":{"strategicPatches":["machine: {nonsense: true}"]}}}}`)
	r.record("configuration-refused", "DataSecretGenerationFailed")
}
