package steps

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// workers is a pool of two servers, as people add it to manifests/cluster.yaml.
const workers = `
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: HCloudMachineTemplate
metadata: {name: k8s-workers, namespace: default}
spec: {template: {spec: {type: cx33, imageName: "${IMAGE_NAME:=i}", publicNetwork: {enableIPv4: true, enableIPv6: false}}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha3
kind: TalosConfigTemplate
metadata: {name: k8s-workers, namespace: default}
spec: {template: {spec: {generateType: worker, talosVersion: v1.13.9}}}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: k8s-workers, namespace: default}
spec:
  clusterName: k8s
  replicas: 2
  selector: {matchLabels: {pool: workers}}
  template:
    metadata: {labels: {pool: workers}}
    spec:
      clusterName: k8s
      version: ${KUBERNETES_VERSION:=v1.35.4}
      bootstrap: {configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1alpha3, kind: TalosConfigTemplate, name: k8s-workers}}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: HCloudMachineTemplate, name: k8s-workers}
`

// withWorkers adds a pool to the manifests below an overrides folder.
func withWorkers(t *testing.T, overrides string, change func(string) string) {
	t.Helper()
	clustertest.Edit(t, overrides, "manifests/cluster.yaml", func(s string) string { return s + change(workers) })
}

func asIs(s string) string { return s }

// renderedOf renders the manifests of a configuration.
func renderedOf(t *testing.T, overrides string, kvs ...string) *render.Rendered {
	t.Helper()
	cfg := config.Defaults()
	for _, kv := range kvs {
		clustertest.Configure(t, &cfg, kv)
	}
	plan, err := New(cfg, platform.Tools{Management: &clustertest.Provider{}, Overrides: overrides})
	if err != nil {
		t.Fatal(err)
	}
	r, err := render.Manifests(plan.b.cfg, plan.b.sources,
		render.ManifestVariables(plan.b.sources, cfg.Image("amd64"), "eu-central", render.Endpoint{IP: "192.0.2.1"}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// liveOf is a cluster that the rendered objects were applied to.
func liveOf(r *render.Rendered) changes.LiveObjects {
	live := changes.LiveObjects{Cluster: "k8s"}
	for i, o := range r.Now {
		o = o.DeepCopy()
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		changes.MarkOwned(o, "k8s")
		live.Wanted, live.Others = append(live.Wanted, *o), append(live.Others, *o)
		if orders.Template(o) == "" {
			continue
		}
		labels := clustertest.Map{capi.ClusterNameLabel: "k8s", capi.DeploymentLabel: o.GetName()}
		if o.GetKind() == "TalosControlPlane" {
			labels = clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
		}
		for n := range capi.Number(o, "spec", "replicas") {
			name := o.GetName() + "-" + string(rune('a'+n))
			live.Machines = append(live.Machines,
				*kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, clustertest.Map{
					"metadata": clustertest.Map{"labels": labels},
					"spec":     clustertest.Map{"infrastructureRef": clustertest.Map{"name": name}}}))
		}
	}
	return live
}

func TestConsequences(t *testing.T) {
	noPool := func(string) string { return "" }
	never := func(*changes.LiveObjects) {}
	change := func(kind, name string, fields clustertest.Map) func(*changes.LiveObjects) {
		return func(l *changes.LiveObjects) {
			for i := range l.Wanted {
				if o := &l.Wanted[i]; o.GetKind() == kind && o.GetName() == name {
					o.Object = kubetest.Object(o.GetAPIVersion(), kind, config.DefaultNamespace, name, merged(o.Object, fields)).Object
				}
			}
		}
	}
	for name, tt := range map[string]struct {
		before []string // configuration of the live cluster
		pool   func(string) string
		live   func(*changes.LiveObjects) // what was done to it since
		now    []string
		after  func(string) string
		want   []string
	}{
		"nothing": {nil, asIs, never, nil, asIs, nil},
		"what webhooks fill in": {nil, asIs, func(l *changes.LiveObjects) {
			change("MachineDeployment", "k8s-workers",
				clustertest.Map{"spec": clustertest.Map{"selector": clustertest.Map{"matchLabels": clustertest.Map{capi.DeploymentLabel: "k8s-workers"}}, "strategy": clustertest.Map{"type": "RollingUpdate"}}})(l)
			change("MachineHealthCheck", "k8s-control-plane",
				clustertest.Map{"spec": clustertest.Map{"nodeStartupTimeout": "20m0s"}})(l)
			change("Cluster", "k8s",
				clustertest.Map{"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "namespace": "default"}}})(l)
			change("HetznerCluster", "k8s",
				clustertest.Map{"spec": clustertest.Map{"sshKeys": clustertest.Map{"robotRescueSecretRef": clustertest.Map{"name": ""}}}})(l)
		}, nil, asIs, nil},
		"another server type": {nil, asIs, never, []string{"SERVER_TYPE=cx43"}, asIs, []string{
			"replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: server type cx33 → cx43 " +
				"(k8s-control-plane-a, k8s-control-plane-b, k8s-control-plane-c; new: k8s-control-plane-225d7-…; about 12m)"}},
		"fewer servers": {[]string{"CONTROL_PLANE_REPLICAS=5"}, noPool, never, nil, noPool, []string{
			"removes 2 of the 5 servers of TalosControlPlane k8s-control-plane: replicas 5 → 3 " +
				"(of k8s-control-plane-a, k8s-control-plane-b, k8s-control-plane-c, k8s-control-plane-d, k8s-control-plane-e)"}},
		"more servers": {nil, noPool, never, []string{"CONTROL_PLANE_REPLICAS=5"}, noPool, []string{
			"adds 2 servers to TalosControlPlane k8s-control-plane: replicas 3 → 5 (new: k8s-control-plane-380b1-…; about 4m)"}},
		"Kubernetes": {nil, asIs, never, []string{"KUBERNETES_VERSION=v1.36.1"}, asIs, []string{
			"replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: Kubernetes v1.35.4 → v1.36.1",
			"replaces all 2 servers of MachineDeployment k8s-workers one after another: Kubernetes v1.35.4 → v1.36.1 " +
				"(k8s-workers-a, k8s-workers-b; new: k8s-workers-…; about 8m)"}},
		"a patch": {nil, noPool,
			change("TalosControlPlane", "k8s-control-plane",
				clustertest.Map{"spec": clustertest.Map{"controlPlaneConfig": clustertest.Map{"controlplane": clustertest.Map{
					"strategicPatches": []any{"machine: {}"}}}}}), nil, noPool,
			[]string{`one after another: strategicPatches ["machine: {}"] → [10 items] (`}},
		"a downgrade of what kubectl upgraded": {nil, noPool,
			change("TalosControlPlane", "k8s-control-plane", clustertest.Map{"spec": clustertest.Map{"version": "v1.36.1"}}),
			nil,
			noPool, []string{"Kubernetes v1.36.1 → v1.35.4, a downgrade, which Kubernetes does not support"}},
		"a bigger load balancer": {nil, noPool, never, []string{"LOAD_BALANCER_TYPE=lb21"}, noPool, []string{
			"changes HetznerCluster k8s in place: spec.controlPlaneLoadBalancer.type lb11 → lb21"}},
		"another location": {nil, noPool, never, []string{"LOCATION=fsn1"}, noPool, []string{
			"cannot change HetznerCluster k8s: spec.controlPlaneLoadBalancer.region nbg1 → fsn1"}},
		"another network": {nil, noPool, never, []string{"NETWORK_CIDR=10.0.0.0/8"}, noPool, []string{
			"cannot change HetznerCluster k8s: spec.hcloudNetwork.cidrBlock 10.10.0.0/16 → 10.0.0.0/8",
			"replaces all 3 servers"}},
		"other Services": {nil, noPool, never, []string{"SERVICE_CIDR=10.10.112.0/20"}, noPool, []string{
			`cannot change Cluster k8s: spec.clusterNetwork.services.cidrBlocks[0] 10.10.96.0/20 → 10.10.112.0/20`,
			"replaces all 3 servers"}},
		"a pool comes": {nil, noPool, never, nil, asIs, []string{
			"creates TalosConfigTemplate k8s-workers", "creates MachineDeployment k8s-workers with 2 servers (new: " +
				"k8s-workers-…; about 4m)"}},
		"a pool shrinks": {nil, asIs, never, nil,
			func(s string) string { return strings.Replace(s, "replicas: 2", "replicas: 1", 1) }, []string{
				"removes 1 of the 2 servers of MachineDeployment k8s-workers: replicas 2 → 1 (of k8s-workers-a, k8s-workers-b)"}},
		"a pool of an autoscaler": {nil, asIs, never, nil,
			func(s string) string { return strings.Replace(s, "  replicas: 2\n", "", 1) }, nil},
		"a pool's template": {nil, asIs, never, nil,
			func(s string) string { return strings.Replace(s, "type: cx33", "type: cx43", 1) }, []string{
				"replaces all 2 servers of MachineDeployment k8s-workers one after another: server type cx33 → cx43"}},
		"a pool's configuration": {nil, asIs, never, nil,
			func(s string) string { return strings.Replace(s, "talosVersion: v1.13.9", "talosVersion: v1.13.10", 1) }, []string{
				"cannot change TalosConfigTemplate k8s-workers: spec.template.spec.talosVersion v1.13.9 → v1.13.10"}},
		"a pool goes": {nil, asIs, never, nil, noPool, []string{
			"deletes MachineDeployment k8s-workers and its 2 servers: it is no longer in the manifests (k8s-workers-a, " +
				"k8s-workers-b)"}},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := t.TempDir(), t.TempDir()
			withPool := func(overrides string, pool func(string) string) {
				if pool(workers) != "" {
					withWorkers(t, overrides, pool)
				}
			}
			withPool(was, tt.pool)
			withPool(is, tt.after)
			live := liveOf(renderedOf(t, was, tt.before...))
			tt.live(&live)
			found := changes.ConsequencesOf(live, renderedOf(t, is, tt.now...).Now, 4*time.Minute)
			var lines []string
			for _, c := range found {
				lines = append(lines, c.Text)
			}
			matches := func(line, want string) bool { return strings.Contains(line, want) }
			if !slices.EqualFunc(lines, tt.want, matches) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(lines, "\n  "), strings.Join(tt.want, "\n  "))
			}
		})
	}
}

// What Slipway did not apply is nobody's to delete.
func TestOnlyWhatWasAppliedIsLeftOut(t *testing.T) {
	pool := kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "others",
		clustertest.Map{"metadata": clustertest.Map{"uid": "1"}})
	managed := func(o *unstructured.Unstructured, manager, operation string) {
		o.Object["metadata"].(clustertest.Map)["managedFields"] = []any{clustertest.Map{"manager": manager,
			"operation": operation}}
	}
	for name, tt := range map[string]struct {
		change func(o *unstructured.Unstructured, l *changes.LiveObjects)
		want   bool
	}{
		"made with kubectl": {func(o *unstructured.Unstructured,
			_ *changes.LiveObjects) {
			managed(o, "kubectl", "Apply")
		}, false},
		"applied": {func(o *unstructured.Unstructured,
			_ *changes.LiveObjects) {
			changes.MarkOwned(o, "k8s")
		}, true},
		"of another cluster": {func(o *unstructured.Unstructured,
			_ *changes.LiveObjects) {
			changes.MarkOwned(o, "other")
		}, false},
		"a copy of what was applied": {func(o *unstructured.Unstructured, _ *changes.LiveObjects) {
			changes.MarkOwned(o, "k8s")
			o.SetName("copied")
		}, false},
		"being deleted": {func(o *unstructured.Unstructured, _ *changes.LiveObjects) {
			changes.MarkOwned(o, "k8s")
			o.Object["metadata"].(clustertest.Map)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		}, false},
		"applied before there were marks": {func(o *unstructured.Unstructured,
			_ *changes.LiveObjects) {
			managed(o, "slipway", "Apply")
		}, true},
		"made by a controller": {func(o *unstructured.Unstructured, _ *changes.LiveObjects) {
			managed(o, "slipway", "Apply")
			o.Object["metadata"].(clustertest.Map)["ownerReferences"] = []any{clustertest.Map{"apiVersion": "a/v1", "kind": "K",
				"name": "n", "uid": "u", "controller": true}}
		}, false},
		"put back by a restore": {func(o *unstructured.Unstructured, l *changes.LiveObjects) {
			managed(o, "slipway", "Apply")
			l.Find(capi.ClusterKind.GroupKind(), "k8s").SetAnnotations(map[string]string{capi.RestoredAnnotation: "5a5a"})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := renderedOf(t, "")
			live, one := liveOf(r), pool.DeepCopy()
			tt.change(one, &live)
			live.Others = append(live.Others, *one)
			found := changes.ConsequencesOf(live, r.Now, 0)
			if deletes := len(found) == 1 && found[0].Effect == changes.EffectDeletes &&
				found[0].Object.Name == one.GetName(); deletes != tt.want || len(found) > 1 {
				t.Errorf("%+v", found)
			}
		})
	}
}

// A pool that leaves the manifests is deleted with consent only, and its servers' price is told.
func TestAPoolThatLeavesTheManifests(t *testing.T) {
	w := clustertest.New(t)
	for _, r := range clustertest.ClusterAPIKinds() {
		w.Management.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", r.Plural+"."+r.Group,
			clustertest.Map{
				"metadata": clustertest.Map{"labels": clustertest.Map{"clusterctl.cluster.x-k8s.io": ""}},
				"spec": clustertest.Map{"group": r.Group, "scope": "Namespaced", "names": clustertest.Map{"kind": r.Kind},
					"versions": []any{clustertest.Map{"name": r.Version, "storage": true}}},
			}))
	}
	run := func(consent bool, agreed ...string) (lines []string, err error) {
		t.Helper()
		tools := w.Tools()
		tools.Consent, tools.Agreed = consent, func() []string { return agreed }
		return runApply(t, w.Config(), tools)
	}
	withWorkers(t, w.Tools().Overrides, asIs)
	if lines, err := run(false); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	pool := func() *unstructured.Unstructured {
		return w.Management.Get(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-workers")
	}
	if o := pool(); o == nil || o.GetLabels()[changes.OwnerLabel] != "k8s" ||
		o.GetAnnotations()[changes.AppliedAsAnnotation] != "MachineDeployment/k8s-workers" {
		t.Fatalf("the pool: %v", o)
	}
	for _, name := range []string{"k8s-workers-x", "k8s-workers-y"} {
		w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, clustertest.Map{
			"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s",
				capi.DeploymentLabel: "k8s-workers"}},
			"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": name}}}))
	}
	// without the pool
	clustertest.Edit(t, w.Tools().Overrides, "manifests/cluster.yaml", func(s string) string { return s + "\n" })
	const summary = "deletes MachineDeployment k8s-workers and its 2 servers: it is no longer in the manifests"
	const details = " (k8s-workers-x, k8s-workers-y; 12.00 EUR a month less)"
	_, err := run(false)
	if err == nil || !strings.Contains(err.Error(), summary+details+":") ||
		!strings.Contains(err.Error(), "put back what left the manifests; to have it changed, run again with --yes") ||
		pool() == nil {
		t.Fatalf("without consent: %v", err)
	}
	if _, err := run(false,
		"deletes MachineDeployment k8s-workers and its 1 server: it is no longer in the manifests"); err == nil ||
		pool() == nil {
		t.Fatalf("another consequence was agreed to: %v", err)
	}
	lines, err := run(false, summary)
	if err != nil || pool() != nil {
		t.Fatalf("agreed to: %v, %v", err, pool())
	}
	for _, want := range []string{"as agreed, this " + summary + details, "deleting MachineDeployment k8s-workers"} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is not among\n%s", want, strings.Join(lines, "\n"))
		}
	}
	// The pool's templates are free now, and go without a question when apply runs next.
	template := func() *unstructured.Unstructured {
		return w.Management.Get("bootstrap.cluster.x-k8s.io/v1alpha3", "TalosConfigTemplate", config.DefaultNamespace, "k8s-workers")
	}
	if template() == nil {
		t.Fatal("the template that the pool used was deleted with it")
	}
	if _, err := run(false); err != nil || template() != nil {
		t.Errorf("the unused template: %v, %v", err, template())
	}
	if w.Management.Get("v1", "Secret", config.DefaultNamespace, config.TokenSecretName) == nil {
		t.Error("the token's Secret is gone")
	}
}

// What the cluster consists of cannot leave the manifests: that is told before anything is asked.
func TestTheClusterCannotLeaveItsManifests(t *testing.T) {
	for _, kind := range []string{"Cluster", "HetznerCluster", "TalosControlPlane"} {
		overrides := t.TempDir()
		clustertest.Edit(t, overrides, "manifests/cluster.yaml", func(s string) string {
			return strings.Replace(s, "\nkind: "+kind+"\nmetadata:\n  name: ${CLUSTER_NAME:=k8s}", "\nkind: "+kind+
				"\nmetadata:\n  name: other", 1)
		})
		_, err := New(config.Defaults(), platform.Tools{Management: &clustertest.Provider{}, Overrides: overrides})
		if err == nil || !strings.Contains(err.Error(), "the "+kind+" is called other") ||
			!strings.Contains(err.Error(), "cluster.yaml") || !strings.Contains(err.Error(), "target destroy") {
			t.Errorf("without a %s: %v", kind, err)
		}
	}
}

// The refusal comes before anything is applied, and names the live value.
func TestAnImmutableFieldIsRefusedByTheRun(t *testing.T) {
	w := clustertest.New(t)
	w.Hetzner.SetImages(hetznertest.Image(1, config.Defaults().Image("amd64"), "x86", "available"))
	lines, err := runApply(t, w.Config(), w.Tools())
	if err != nil || slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "this ") }) {
		t.Fatalf("the first apply, which changes nothing that exists: %v, %q", err, lines)
	}
	writes := len(w.Management.Writes())
	cfg, tools := w.Config(), w.Tools()
	tools.Consent = true
	clustertest.Configure(t, &cfg, "CONTROL_PLANE_CIDR=10.10.65.0/25")
	_, err = runApply(t, cfg, tools)
	if err == nil || !strings.Contains(err.Error(), "cannot change HetznerCluster k8s: "+
		"spec.hcloudNetwork.subnetCidrBlock 10.10.64.0/25 → 10.10.65.0/25: the field is immutable") {
		t.Errorf("%v", err)
	}
	for _, one := range w.Management.Writes()[writes:] {
		if strings.Contains(one.Path, "hetznercluster") || strings.Contains(one.Path, "taloscontrolplane") {
			t.Errorf("it wrote %v all the same", one)
		}
	}
}

func merged(o, fields clustertest.Map) clustertest.Map {
	o = maps.Clone(o)
	for key, value := range fields {
		child, isObject := value.(clustertest.Map)
		was, wasObject := o[key].(clustertest.Map)
		if isObject && wasObject {
			value = merged(was, child)
		}
		o[key] = value
	}
	return o
}

// runApply runs the plan up to apply and gives what it said.
func runApply(t *testing.T, cfg config.Config, tools platform.Tools) (lines []string, err error) {
	t.Helper()
	plan, err := New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Graph.Run(t.Context(),
		flow.Options{Journal: flow.Memory(), Targets: []string{"apply"}, Observe: func(e flow.Event) {
			if e.Step == "apply" && e.Message != "" {
				lines = append(lines, e.Message)
			}
		}})
	return lines, err
}
