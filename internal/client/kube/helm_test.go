package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/repo"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// demo is a chart with a ConfigMap that shows a value and a DaemonSet.
func demo(version string) *chart.Chart {
	file := func(name, data string) *chart.File { return &chart.File{Name: name, Data: []byte(data)} }
	return &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "demo", Version: version},
		Templates: []*chart.File{
			file("templates/cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: demo}\ndata: {color: {{ "+
				".Values.color }}}\n"),
			file("templates/ds.yaml", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: demo}\nspec: {selector: "+
				"{matchLabels: {app: demo}}, template: {metadata: {labels: {app: demo}}, spec: {containers: [{name: c, "+
				"image: i}]}}}\n"),
		},
		Values: map[string]any{"color": "none"},
	}
}

// said collects what a step would say.
type said []string

func (s *said) say(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }
func (s *said) all() string                    { return strings.Join(*s, "\n") }

// us is the owner of the records that these tests' Slipway writes.
const us = "0123456789abcdef"

func helm(t *testing.T, c *kube.Cluster) *kube.Helm {
	t.Helper()
	h, err := c.Helm("system", us, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wanted is the demo at a version and colour. Its DaemonSet is never ready, as no controller runs it, and counts as
// ready where a test set that.
func wanted(t *testing.T, c *kube.Cluster, version, color string) kube.Wanted {
	recovered := ""
	return kube.Wanted{
		Name: "demo", Chart: demo(version), Values: map[string]any{"color": color}, Recovered: &recovered,
		State: func(r *kube.Release) (kube.WorkloadState, error) {
			w, err := kube.Workloads(r.Manifest, "system")
			if err != nil {
				return kube.WorkloadState{}, err
			}
			exist, err := c.Exist(t.Context(), w...)
			if err != nil || !exist {
				return kube.WorkloadState{Gone: !exist}, err
			}
			unready, err := c.Unready(t.Context(), w...)
			return kube.WorkloadState{Unready: unready}, err
		},
	}
}

// ensure brings the demo to a version and colour.
func ensure(t *testing.T, c *kube.Cluster, s *said, version, color string) *kube.Release {
	t.Helper()
	r, err := helm(t, c).Ensure(t.Context(), s.say, wanted(t, c, version, color))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// color is what the ConfigMap of the release shows.
func color(api *kubetest.Server) any {
	cm := api.Get("v1", "ConfigMap", "system", "demo")
	if cm == nil {
		return nil
	}
	return cm.Object["data"].(map[string]any)["color"]
}

// records opens Helm's own records, to leave them as a killed process would.
func records(t *testing.T, api *kubetest.Server) *storage.Storage {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return storage.Init(driver.NewSecrets(clients.CoreV1().Secrets("system")))
}

// leave marks the last revision with a status, as a process would that ends then: of this Slipway, or another's helm.
func leave(t *testing.T, api *kubetest.Server, status release.Status, owner string) {
	t.Helper()
	s := records(t, api)
	last, err := s.Last("demo")
	if err != nil {
		t.Fatal(err)
	}
	last.Info.Status = status
	if err := s.Update(last); err != nil {
		t.Fatal(err)
	}
	if owner != "" {
		api.Change("v1", "Secret", "system", recordName(last.Version), map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{kube.OwnerAnnotation: owner}}})
	}
}

func recordName(revision int) string { return fmt.Sprintf("sh.helm.release.v1.demo.v%d", revision) }

func TestHelmInstallsThenLeavesAlone(t *testing.T) {
	api, c := connect(t)
	var s said
	if r := ensure(t, c, &s, "1.0.0", "red"); !r.Changed || r.Revision != 1 {
		t.Fatalf("first run: %+v", r)
	}
	if color(api) != "red" {
		t.Fatalf("the ConfigMap shows %v", color(api))
	}
	if revision, err := c.DeployedRevision(t.Context(), "system", "demo"); err != nil || revision != 1 {
		t.Errorf("deployed revision %d, %v", revision, err)
	}
	if r := api.Get("v1", "Secret", "system", recordName(1)); r.GetAnnotations()[kube.OwnerAnnotation] != us {
		t.Errorf("the record is not signed: %v", r.GetAnnotations())
	}
	before := len(api.Writes())
	if r := ensure(t, c, &s, "1.0.0", "red"); r.Changed || r.Revision != 1 {
		t.Errorf("second run: %+v", r)
	}
	if n := len(api.Writes()) - before; n != 0 {
		t.Errorf("the second run wrote %d times", n)
	}
}

func TestHelmUpgrades(t *testing.T) {
	api, c := connect(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	if r := ensure(t, c, &s, "1.0.0", "blue"); !r.Changed || r.Revision != 2 || color(api) != "blue" {
		t.Errorf("new values: %+v, %v", r, color(api))
	}
	if r := ensure(t, c, &s, "1.1.0", "blue"); !r.Changed || r.Revision != 3 {
		t.Errorf("new version: %+v", r)
	}
	if revision, err := c.DeployedRevision(t.Context(), "system", "demo"); err != nil || revision != 3 {
		t.Errorf("deployed revision %d, %v", revision, err)
	}
}

// Another repository may have another chart of the same name and version.
func TestHelmUpgradesToAnotherChartOfTheSameVersion(t *testing.T) {
	for what, change := range map[string]func(*chart.Chart){
		"a template": func(c *chart.Chart) { c.Templates[0].Data = append(c.Templates[0].Data, "# edited\n"...) },
		"a file": func(c *chart.Chart) {
			c.Files = append(c.Files, &chart.File{Name: "dashboard.json", Data: []byte("{}")})
		},
		"a default": func(c *chart.Chart) { c.Values["size"] = 3 },
	} {
		_, c := connect(t)
		var s said
		ensure(t, c, &s, "1.0.0", "red")
		other := wanted(t, c, "1.0.0", "red")
		change(other.Chart)
		r, err := helm(t, c).Ensure(t.Context(), s.say, other)
		if err != nil || !r.Changed || r.Revision != 2 || !strings.Contains(s.all(), "another chart") {
			t.Errorf("%s: %+v, %v; it says %q", what, r, err, s)
		}
	}
}

func TestHelmRepairsWhatIsGone(t *testing.T) {
	api, c := connect(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	api.Remove("apps/v1", "DaemonSet", "system", "demo")
	if r := ensure(t, c, &s, "1.0.0", "red"); !r.Changed {
		t.Errorf("left a release alone whose workload is gone: %+v", r)
	}
	if api.Get("apps/v1", "DaemonSet", "system", "demo") == nil {
		t.Error("the workload is still gone")
	}
}

func TestHelmMeetsAnUnknownKind(t *testing.T) {
	api, c := connect(t)
	var s said
	ch := demo("1.0.0")
	ch.Templates = append(ch.Templates, &chart.File{Name: "templates/w.yaml",
		Data: []byte("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n")})
	w := wanted(t, c, "1.0.0", "red")
	w.Chart = ch
	_, err := helm(t, c).Ensure(t.Context(), s.say, w)
	if !kube.UnknownKind(err) {
		t.Fatalf("got %v", err)
	}
	if len(api.Writes()) > 0 {
		t.Errorf("it left something behind: %v", api.Writes())
	}
}

// repository serves the demo chart as a classic repository.
func repository(t *testing.T, mangle bool) string {
	t.Helper()
	dir := t.TempDir()
	path, err := chartutil.Save(demo("1.0.0"), dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := repo.IndexDirectory(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.WriteFile(filepath.Join(dir, "index.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if mangle {
		if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(s.Close)
	return s.URL
}

func TestLoadChart(t *testing.T) {
	from := kube.ChartSource{Repository: repository(t, false), Name: "demo", Version: "1.0.0"}
	ch, err := kube.LoadChart(t.Context(), from, t.TempDir(), os.Stderr)
	if err != nil || ch.Metadata.Version != "1.0.0" {
		t.Fatalf("%v, %v", ch, err)
	}
	for name, tt := range map[string]struct {
		from kube.ChartSource
		want string
	}{
		"no such version": {kube.ChartSource{Repository: from.Repository, Name: "demo", Version: "9.9.9"}, "no such version"},
		"no such chart": {kube.ChartSource{Repository: from.Repository, Name: "other", Version: "1.0.0"},
			"no such version"},
		"another file": {kube.ChartSource{Repository: repository(t, true), Name: "demo", Version: "1.0.0"}, "sha256"},
		"no repository": {kube.ChartSource{Repository: from.Repository + "/nowhere", Name: "demo", Version: "1.0.0"},
			"404"},
		"no registry": {kube.ChartSource{Repository: "oci://127.0.0.1:1/charts", Name: "demo", Version: "1.0.0"},
			"127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kube.LoadChart(t.Context(), tt.from, t.TempDir(), os.Stderr)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.from.Version) {
				t.Errorf("got %v, want something about %s", err, tt.want)
			}
		})
	}
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer unwell.Close()
	for repository, want := range map[string]bool{
		unwell.URL: true, "oci://" + strings.TrimPrefix(unwell.URL, "http://") + "/charts": true,
		"http://127.0.0.1:1": true, "oci://127.0.0.1:1/charts": true, from.Repository + "/nowhere": false,
	} {
		_, err := kube.LoadChart(t.Context(), kube.ChartSource{Repository: repository, Name: "demo", Version: "1.0.0"},
			t.TempDir(), os.Stderr)
		if err == nil || kube.Transient(err) != want {
			t.Errorf("%s: %v may pass: %v, want %v", repository, err, !want, want)
		}
	}
	for name, address := range map[string]string{
		"no such version": from.Repository, "no repository": from.Repository + "/nowhere", "another file": repository(t,
			true),
		"an unwell one": unwell.URL, "nobody": "http://127.0.0.1:1",
	} {
		// a token may also be the name of a user
		for _, user := range []string{"me:planted@", "planted@", "planted:x-oauth-basic@"} {
			from := kube.ChartSource{Repository: strings.Replace(address, "http://", "http://"+user, 1), Name: "demo",
				Version: "1.0.0"}
			if name == "no such version" {
				from.Version = "9.9.9"
			}
			if _, err := kube.LoadChart(t.Context(), from, t.TempDir(), os.Stderr); err == nil ||
				strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "//xxxxx@") {
				t.Errorf("%s: the credentials of its repository: %v", name, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kube.LoadChart(ctx, from, t.TempDir(), os.Stderr); err == nil {
		t.Error("downloaded for a caller that is gone")
	}
}
