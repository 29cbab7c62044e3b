package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// auditAnnotation is documented in docs/releases.md.
const auditAnnotation = "slipway.dev/recovered"

var (
	helmReleases     = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	gitRepositories  = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	reconcileRequest = "reconcile.fluxcd.io/requestedAt"
)

// shopChart is a chart with a ConfigMap.
var shopChart = map[string]string{
	"charts/shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"charts/shop/templates/shop.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-shop}\n" +
		"data: {colour: {{ .Values.colour | quote }}}\n",
}

// TestStuckReleases has HelmReleases get stuck as docs/releases.md says that they do, with the helm-controller of a
// release of Flux, and recovers them. It is skipped where Flux's programs are not built.
func TestStuckReleases(t *testing.T) {
	needFlux(t)
	c := newCommand(t)
	args := []string{"bootstrap", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1"}
	first := c.run(nil, args...)
	if first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	if done := first.steps("step-done"); slices.Index(done, "flux-releases") <= slices.Index(done, "flux-sync") {
		t.Errorf("flux-releases is not done after flux-sync: %v", done)
	}
	f := newFluxReleases(t, c)
	f.create("stuck", "pending", "lost", "healthy")
	healthy := f.version("stuck", "healthy")

	f.scale(0)
	f.diesUpgrading("pending")
	f.losesReport("stuck", "lost")
	f.dryRun()
	f.eleven()
	f.recovers()
	f.deleteEleven()
	if is := f.version("stuck", "healthy"); is != healthy {
		t.Errorf("the healthy HelmRelease was changed: %s became %s", healthy, is)
	}

	f.scale(1)
	f.becomesReady("pending", 2, "green")
	f.becomesReady("lost", 1, "blue")
	f.becomesReady("healthy", 1, "blue")
	if is := f.get("stuck", "healthy"); is.GetAnnotations()[auditAnnotation] != "" {
		t.Errorf("the healthy HelmRelease was recovered: %v", is.GetAnnotations())
	}
	f.notTwice("lost")
	f.step(args)
}

// needFlux skips a test where Flux's programs are not built.
func needFlux(t *testing.T) {
	t.Helper()
	check := exec.Command(buildCommand(t), "lab", "build", "--check", "GITOPS=flux")
	check.Dir = repositoryRoot(t)
	if out, err := check.CombinedOutput(); err != nil {
		t.Skipf("%s", out)
	}
}

// fluxReleases are the HelmReleases of a cluster in the lab.
type fluxReleases struct {
	t       *testing.T
	c       *command
	client  *kubernetes.Clientset
	dynamic dynamic.Interface
}

// newFluxReleases commits the chart, and has the source-controller read it.
func newFluxReleases(t *testing.T, c *command) *fluxReleases {
	t.Helper()
	config := must(clientcmd.BuildConfigFromFlags("", filepath.Join(c.state, "kubeconfig")))(t)
	f := &fluxReleases{t, c, workload(t, c), must(dynamic.NewForConfig(config))(t)}
	var info struct {
		Git struct{ URL, User, Token string }
	}
	c.labGet("/v1/info", &info)
	commitFiles(t, info.Git.URL, info.Git.User, info.Git.Token, shopChart)
	f.request(gitRepositories, "flux-system", "flux-system")
	return f
}

// request asks a controller to reconcile an object now.
func (f *fluxReleases) request(kind schema.GroupVersionResource, namespace, name string) (at string) {
	f.t.Helper()
	at = time.Now().UTC().Format(time.RFC3339Nano)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, reconcileRequest, at)
	_, err := f.dynamic.Resource(kind).Namespace(namespace).Patch(f.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	return at
}

func (f *fluxReleases) namespace(name string) {
	f.t.Helper()
	_, err := f.client.CoreV1().Namespaces().Create(f.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// apply creates a HelmRelease of the chart. An operation of it may take ten seconds.
func (f *fluxReleases) apply(namespace, name string) {
	f.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"interval": "1h", "timeout": "10s", "values": map[string]any{"colour": "blue"},
			"chart": map[string]any{"spec": map[string]any{"chart": "./charts/shop", "sourceRef": map[string]any{
				"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"}}}}}}
	_, err := f.dynamic.Resource(helmReleases).Namespace(namespace).Create(f.t.Context(), o,
		metav1.CreateOptions{FieldManager: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
}

// create creates HelmReleases, and waits until the helm-controller has installed them.
func (f *fluxReleases) create(namespace string, names ...string) {
	f.t.Helper()
	f.namespace(namespace)
	for _, name := range names {
		f.apply(namespace, name)
	}
	for _, name := range names {
		eventually(f.t, "HelmRelease "+name, 4*time.Minute, func(context.Context) string {
			if ready := readyOf(f.get(namespace, name)); ready["status"] != "True" {
				return fmt.Sprint(ready)
			}
			return ""
		})
	}
}

func (f *fluxReleases) get(namespace, name string) *unstructured.Unstructured {
	f.t.Helper()
	o, err := f.dynamic.Resource(helmReleases).Namespace(namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func (f *fluxReleases) version(namespace, name string) string {
	f.t.Helper()
	return f.get(namespace, name).GetResourceVersion()
}

func conditionsOf(o *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return all
}

func readyOf(o *unstructured.Unstructured) map[string]any {
	for _, c := range conditionsOf(o) {
		if c := c.(map[string]any); c["type"] == "Ready" {
			return c
		}
	}
	return nil
}

// records are Helm's of a namespace.
func (f *fluxReleases) records(namespace string) *storage.Storage {
	return storage.Init(driver.NewSecrets(f.client.CoreV1().Secrets(namespace)))
}

// snapshot is every HelmRelease and every record of Helm, with its resourceVersion.
func (f *fluxReleases) snapshot() (all []string) {
	f.t.Helper()
	releases, err := f.dynamic.Resource(helmReleases).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range releases.Items {
		all = append(all, o.GetNamespace()+"/"+o.GetName()+" "+o.GetResourceVersion())
	}
	records, err := f.client.CoreV1().Secrets("").List(f.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range records.Items {
		all = append(all, o.Namespace+"/"+o.Name+" "+o.ResourceVersion)
	}
	slices.Sort(all)
	return all
}

// scale scales the helm-controller, and waits until its Pod is there, or gone.
func (f *fluxReleases) scale(replicas int) {
	f.t.Helper()
	_, err := f.client.AppsV1().Deployments("flux-system").Patch(f.t.Context(), "helm-controller", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, fmt.Sprintf("%d Pods of the helm-controller", replicas), 2*time.Minute, func(ctx context.Context) string {
		pods, err := f.client.CoreV1().Pods("flux-system").List(ctx, metav1.ListOptions{LabelSelector: "app=helm-controller"})
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) != replicas {
			return fmt.Sprintf("%d Pods", len(pods.Items))
		}
		return ""
	})
}

// condition is one as the helm-controller writes it.
func (f *fluxReleases) condition(of, status, reason, message string, at time.Time, generation int64) map[string]any {
	return map[string]any{"type": of, "status": status, "reason": reason, "message": message,
		"lastTransitionTime": at.UTC().Format(time.RFC3339), "observedGeneration": generation}
}

// writeStatus writes the status of a HelmRelease in the helm-controller's place. Conditions that are not given stay.
func (f *fluxReleases) writeStatus(o *unstructured.Unstructured, conditions ...map[string]any) {
	f.t.Helper()
	var all []any
	for _, c := range conditions {
		all = append(all, c)
	}
	for _, was := range conditionsOf(o) {
		if !slices.ContainsFunc(conditions, func(c map[string]any) bool { return c["type"] == was.(map[string]any)["type"] }) {
			all = append(all, was)
		}
	}
	if err := unstructured.SetNestedSlice(o.Object, all, "status", "conditions"); err != nil {
		f.t.Fatal(err)
	}
	_, err := f.dynamic.Resource(helmReleases).Namespace(o.GetNamespace()).UpdateStatus(f.t.Context(), o,
		metav1.UpdateOptions{FieldManager: "helm-controller"})
	if err != nil {
		f.t.Fatal(err)
	}
}

// diesUpgrading leaves a HelmRelease as a helm-controller does that ends within an upgrade: with other values, the
// conditions of an operation at work, and a pending record of the next revision.
func (f *fluxReleases) diesUpgrading(name string) {
	f.t.Helper()
	o, err := f.dynamic.Resource(helmReleases).Namespace("stuck").Patch(f.t.Context(), name, types.MergePatchType,
		[]byte(`{"spec":{"values":{"colour":"green"}}}`), metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.writeStatus(o,
		f.condition("Reconciling", "True", "Progressing", "Running 'upgrade' action", time.Now(), o.GetGeneration()),
		f.condition("Ready", "Unknown", "Progressing", "Running 'upgrade' action", time.Now(), o.GetGeneration()))
	records := f.records("stuck")
	was, err := records.Deployed(name)
	if err != nil {
		f.t.Fatal(err)
	}
	f.pendingRecord("stuck", *was, release.StatusPendingUpgrade, was.Version+1)
}

// pendingRecord writes a record of an operation that began.
func (f *fluxReleases) pendingRecord(namespace string, of release.Release, status release.Status, revision int) {
	f.t.Helper()
	info := *of.Info
	info.Status, info.Description = status, "Preparing"
	of.Info, of.Version = &info, revision
	if err := f.records(namespace).Create(&of); err != nil {
		f.t.Fatal(err)
	}
}

// losesReport leaves a HelmRelease as one whose helm-controller could not write that it is Ready, an hour ago.
func (f *fluxReleases) losesReport(namespace, name string) {
	f.t.Helper()
	o := f.get(namespace, name)
	f.writeStatus(o, f.condition("Ready", "Unknown", "Progressing", "Fulfilling prerequisites",
		time.Now().Add(-time.Hour), o.GetGeneration()))
}

// releasesReport is the output of recover-releases.
type releasesReport struct {
	Kind    string
	Healthy int
	Stuck   []struct{ Namespace, Name, Kind, Why, What, Outcome, Error string }
	Left    []struct{ Namespace, Name, Why string }
}

// recover runs recover-releases with a threshold of a second.
func (f *fluxReleases) recover(args ...string) (report releasesReport, exit int, output string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	all := append([]string{"recover-releases", "--lab", "--threshold", "1s", "--output", "json"}, args...)
	cmd := f.c.cmd(ctx, all...)
	out, _ := cmd.CombinedOutput() // the exit code is returned
	for line := range strings.Lines(string(out)) {
		var one releasesReport
		if json.Unmarshal([]byte(line), &one) == nil && one.Kind == "recover-releases" {
			report = one
		}
	}
	return report, cmd.ProcessState.ExitCode(), string(out)
}

// outcome is what was done with a HelmRelease; empty: it is not among the stuck ones.
func (r releasesReport) outcome(name string) string {
	for _, s := range r.Stuck {
		if s.Name == name {
			return s.Kind + ": " + s.Outcome
		}
	}
	return ""
}

// dryRun finds both kinds once the time of an operation has passed, and changes nothing.
func (f *fluxReleases) dryRun() {
	f.t.Helper()
	before := f.snapshot()
	eventually(f.t, "the HelmReleases to count as stuck", 2*time.Minute, func(context.Context) string {
		report, exit, output := f.recover("--dry-run")
		if exit != 0 || len(report.Stuck) > 2 {
			f.t.Fatalf("exit %d\n%s", exit, output)
		}
		if report.outcome("pending") != "pending: would recover" || report.outcome("lost") != "status: would recover" ||
			report.Healthy == 0 {
			return output
		}
		return ""
	})
	if after := f.snapshot(); !slices.Equal(before, after) {
		f.t.Errorf("a dry run has changed %v to %v", before, after)
	}
}

// eleven has eleven more get stuck within their installation. Thirteen are refused, with nothing changed.
func (f *fluxReleases) eleven() {
	f.t.Helper()
	f.namespace("many")
	like, err := f.records("stuck").Deployed("healthy")
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range 11 {
		name := fmt.Sprintf("shop-%d", i)
		f.apply("many", name)
		o := f.get("many", name)
		f.writeStatus(o, f.condition("Ready", "Unknown", "Progressing", "Running 'install' action", time.Now(), 1))
		of := *like
		of.Name, of.Namespace = name, "many"
		f.pendingRecord("many", of, release.StatusPendingInstall, 1)
	}
	before := f.snapshot()
	eventually(f.t, "thirteen stuck HelmReleases", 2*time.Minute, func(context.Context) string {
		report, exit, output := f.recover("--dry-run")
		if len(report.Stuck) < 13 {
			return output
		}
		if exit != 1 {
			f.t.Errorf("a dry run with 13: exit %d\n%s", exit, output)
		}
		return ""
	})
	for _, args := range [][]string{nil, {"--namespace", "many"}} {
		report, exit, output := f.recover(args...)
		if exit != 1 || !strings.Contains(output, "something larger is wrong") || report.outcome("shop-3") != "pending: refused" {
			f.t.Errorf("%v: exit %d\n%s", args, exit, output)
		}
	}
	if after := f.snapshot(); !slices.Equal(before, after) {
		f.t.Errorf("a run that was refused has changed %v to %v", before, after)
	}
}

// recovers recovers those of one namespace, and leaves the others as they are.
func (f *fluxReleases) recovers() {
	f.t.Helper()
	many := f.version("many", "shop-3")
	report, exit, output := f.recover("--namespace", "stuck")
	if exit != 0 || report.outcome("pending") != "pending: recovered" || report.outcome("lost") != "status: recovered" ||
		report.Healthy != 1 {
		f.t.Fatalf("exit %d\n%s", exit, output)
	}
	if f.version("many", "shop-3") != many {
		f.t.Error("a HelmRelease of another namespace was changed")
	}
	history, err := f.records("stuck").History("pending")
	if err != nil || len(history) != 1 {
		f.t.Errorf("Helm has %d records, %v", len(history), err)
	}
	for _, name := range []string{"pending", "lost"} {
		o := f.get("stuck", name)
		var audit struct {
			State, By, What string
			Generation      int64
		}
		if err := json.Unmarshal([]byte(o.GetAnnotations()[auditAnnotation]), &audit); err != nil || audit.State != "done" ||
			audit.Generation != o.GetGeneration() || !strings.HasPrefix(audit.By, "slipway ") || audit.What == "" {
			f.t.Errorf("%s: the annotation is %s, of generation %d, %v", name, o.GetAnnotations()[auditAnnotation],
				o.GetGeneration(), err)
		}
		if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); suspended {
			f.t.Errorf("%s is suspended", name)
		}
	}
	if ready := readyOf(f.get("stuck", "lost")); ready["status"] != "True" || ready["reason"] != "StatusRecovered" {
		f.t.Errorf("Ready of lost is %v", ready)
	}
}

// deleteEleven deletes the HelmReleases that no controller has seen, with their records.
func (f *fluxReleases) deleteEleven() {
	f.t.Helper()
	err := f.dynamic.Resource(helmReleases).Namespace("many").DeleteCollection(f.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err == nil {
		err = f.client.CoreV1().Secrets("many").DeleteCollection(f.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// becomesReady asks the helm-controller to reconcile a HelmRelease, and waits until it has reported that it is Ready, at
// a revision and with the values of today.
func (f *fluxReleases) becomesReady(name string, revision int, colour string) {
	f.t.Helper()
	requested := f.request(helmReleases, "stuck", name)
	eventually(f.t, "HelmRelease "+name+" with a helm-controller again", 3*time.Minute, func(ctx context.Context) string {
		o := f.get("stuck", name)
		ready := readyOf(o)
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		if ready["status"] != "True" || handled != requested {
			return fmt.Sprintf("%s, handled %s: %v", requested, handled, ready)
		}
		return ""
	})
	is, err := f.records("stuck").Deployed(name)
	if err != nil || is.Version != revision {
		f.t.Errorf("%s: revision %+v is deployed, want %d: %v", name, is, revision, err)
	}
	shop, err := f.client.CoreV1().ConfigMaps("stuck").Get(f.t.Context(), name+"-shop", metav1.GetOptions{})
	if err != nil || shop.Data["colour"] != colour {
		f.t.Errorf("%s: its ConfigMap is %v, %v", name, shop.Data, err)
	}
}

// notTwice loses the report of a HelmRelease again, which is left alone then.
func (f *fluxReleases) notTwice(name string) {
	f.t.Helper()
	f.losesReport("stuck", name)
	before := f.version("stuck", name)
	report, exit, output := f.recover("--namespace", "stuck")
	if exit != 0 || len(report.Stuck) > 0 || len(report.Left) != 1 || report.Left[0].Name != name ||
		!strings.Contains(report.Left[0].Why, "is not recovered twice") {
		f.t.Errorf("exit %d\n%s", exit, output)
	}
	if f.version("stuck", name) != before {
		f.t.Error("it was changed")
	}
}

// step has a run of the bootstrap recover a HelmRelease, and nothing else; the run after it changes nothing.
func (f *fluxReleases) step(args []string) {
	f.t.Helper()
	f.losesReport("stuck", "healthy")
	run := f.c.run(nil, args...)
	if ran := run.steps("step-started"); run.exit != 0 || !slices.Equal(ran, []string{"flux-releases"}) ||
		!strings.Contains(run.output, "HelmRelease stuck/healthy: recovered: set the condition Ready to True") {
		f.t.Errorf("exit %d, %v ran\n%s", run.exit, ran, run.output)
	}
	if ready := readyOf(f.get("stuck", "healthy")); ready["status"] != "True" || ready["reason"] != "StatusRecovered" {
		f.t.Errorf("Ready is %v", ready)
	}
	again := f.c.run(nil, args...)
	if ran := again.steps("step-started"); again.exit != 0 || len(ran) > 0 {
		f.t.Errorf("exit %d, %v ran\n%s", again.exit, ran, again.output)
	}
}
