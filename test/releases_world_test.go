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

var (
	helmReleases    = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1",
		Resource: "gitrepositories"}
	reconcileRequest = "reconcile.fluxcd.io/requestedAt"
)

// shopChart is a chart with a ConfigMap.
var shopChart = map[string]string{
	"charts/shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"charts/shop/templates/shop.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-shop}\n" +
		"data: {colour: {{ .Values.colour | quote }}}\n",
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
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "helm.toolkit.fluxcd.io/v2",
		"kind": "HelmRelease", "metadata": map[string]any{"name": name, "namespace": namespace},
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
	what := fmt.Sprintf("%d Pods of the helm-controller", replicas)
	eventually(f.t, what, 2*time.Minute, func(ctx context.Context) string {
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
		of := was.(map[string]any)["type"]
		if !slices.ContainsFunc(conditions, func(c map[string]any) bool { return c["type"] == of }) {
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
