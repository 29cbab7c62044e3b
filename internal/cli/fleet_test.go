package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

const (
	fleetNamespace = "fleets"
	fleetToken     = "planted-token-of-a-project"
	fleetImage     = "example.org/slipway@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// fleetHead begins a fleet's file, before its clusters.
	fleetHead = "name: demo\nnamespace: fleets\nimage: " + fleetImage + "\nskipDoctor: true\nmaxParallel: 1\n"
	// fleetOfTwo is a fleet whose token is in the environment.
	fleetOfTwo = fleetHead + "tokens:\n  default: {env: FLEET_TOKEN}\nclusters:\n  - name: alpha\n  - name: beta\n"
)

// fleetTest runs the commands of fleet against a management cluster whose Job controller is played.
type fleetTest struct {
	*kubetest.Server
	t           *testing.T
	dir         string
	environment []string
	key         string // opens the states

	mu    sync.Mutex
	fails map[string]bool // clusters whose Jobs fail
	holds bool            // Jobs that have begun do not end
	began []string        // clusters, in the order in which their Jobs began
	// installed has, for each Job that installed the providers, the clusters whose Jobs had begun before.
	installed []string
	known     map[string]bool // UIDs of Jobs that have begun
	begin     func()          // is called as a Job begins
	hetzner   *httptest.Server
}

// readOnlyToken ends a token that Hetzner takes for reading alone.
const readOnlyToken = "-for-reading"

// answerWrite answers as Hetzner does where something that cannot exist is to be deleted.
func answerWrite(w http.ResponseWriter, r *http.Request) {
	status, code := http.StatusNotFound, "not_found"
	if strings.HasSuffix(r.Header.Get("Authorization"), readOnlyToken) {
		status, code = http.StatusForbidden, "forbidden"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"of the test"}}`, code)
}

func newFleetTest(t *testing.T, file string) *fleetTest {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetTest{t: t, dir: t.TempDir(), key: key.String(), fails: map[string]bool{}, known: map[string]bool{},
		begin: func() {}}
	f.Server = kubetest.New("management", kubetest.RBAC()...)
	f.React = f.react
	f.Logs = func(w http.ResponseWriter, r *http.Request) {
		_, below, _ := strings.Cut(r.URL.Path, "/pods/")
		fmt.Fprintf(w, "2026-01-02T03:04:05Z first line of %s\n2026-01-02T03:04:06Z last line\n", strings.TrimSuffix(below,
			"/log"))
	}
	f.hetzner = httptest.NewServer(http.HandlerFunc(answerWrite))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close(); f.hetzner.Close() })
	f.write("kubeconfig", string(f.Kubeconfig()))
	f.write("fleet.yaml", file)
	f.useKey(f.key)
	return f
}

// useKey sets the operator's key.
func (f *fleetTest) useKey(key string) {
	f.key = key
	f.environment = []string{"MANAGEMENT_KUBECONFIG=kubeconfig", "FLEET_TOKEN=" + fleetToken,
		settings.StateIdentityVariable + "=" + key, settings.EndpointVariable + "=" + f.hetzner.URL}
}

// secret is the content of a key of a Secret.
func (f *fleetTest) secret(namespace, name, key string) string {
	f.t.Helper()
	o := f.Get("v1", "Secret", namespace, name)
	if o == nil {
		f.t.Fatalf("there is no Secret %s/%s", namespace, name)
	}
	data, _, _ := unstructured.NestedString(o.Object, "data", key)
	is, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(is)
}

func (f *fleetTest) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleetTest) react(o *unstructured.Unstructured) {
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	cluster := o.GetLabels()[fleet.ClusterLabel]
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.GetKind() == "Job" && cluster == "" && !suspended && installs(o) && !f.known[string(o.GetUID())] {
		f.known[string(o.GetUID())] = true
		f.installed = append(f.installed, strings.Join(f.began, " "))
		f.endJob(o.GetName(), f.fails["providers"])
	}
	if o.GetKind() != "Job" || cluster == "" || suspended || f.known[string(o.GetUID())] {
		return
	}
	f.known[string(o.GetUID())] = true
	f.began = append(f.began, cluster)
	f.Put(kubetest.Object("v1", "Pod", fleetNamespace, podOfJob(o), map[string]any{
		"metadata": map[string]any{"labels": map[string]any{fleet.FleetLabel: "demo", batchv1.JobNameLabel: o.GetName()},
			"ownerReferences": []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": o.GetName(),
				"uid": string(o.GetUID()), "controller": true}}},
		"status": map[string]any{"phase": "Running", "containerStatuses": []any{map[string]any{"name": fleet.Container,
			"containerID": "1", "state": map[string]any{"running": map[string]any{"startedAt": "2026-01-02T03:04:00Z"}}}}},
	}))
	if !f.holds {
		f.end(o.GetName(), f.fails[cluster])
	}
	f.begin()
}

// installs reports whether a Job is the one that installs the providers.
func installs(job *unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(job.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	return len(args) > 1 && args[1] == "providers"
}

func podOfJob(job *unstructured.Unstructured) string {
	return job.GetName() + "-" + string(job.GetUID())
}

// end has a Job be over.
func (f *fleetTest) end(job string, fails bool) {
	phase := "Succeeded"
	if fails {
		phase = "Failed"
	}
	o := f.Get("batch/v1", "Job", fleetNamespace, job)
	f.Change("v1", "Pod", fleetNamespace, podOfJob(o), map[string]any{"status": map[string]any{"phase": phase}})
	f.endJob(job, fails)
}

// endJob has a Job without a Pod be over.
func (f *fleetTest) endJob(job string, fails bool) {
	condition := "Complete"
	if fails {
		condition = "Failed"
	}
	f.Change("batch/v1", "Job", fleetNamespace, job, map[string]any{"status": map[string]any{
		"startTime": "2026-01-02T03:04:00Z", "conditions": []any{map[string]any{"type": condition, "status": "True",
			"reason": "BackoffLimitExceeded", "message": "of the test", "lastTransitionTime": "2026-01-02T03:05:00Z"}}}})
}

// play changes what the Job controller does from now on.
func (f *fleetTest) play(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fleetTest) order() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.began, " ")
}

// jobs are the Jobs of the clusters, by their clusters.
func (f *fleetTest) jobs() map[string]*batchv1.Job {
	f.t.Helper()
	all := map[string]*batchv1.Job{}
	for path, o := range f.All() {
		if !strings.Contains(path, "/jobs/") || o.GetLabels()[fleet.ClusterLabel] == "" {
			continue
		}
		job := &batchv1.Job{}
		data, err := o.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(data, job)
		}
		if err != nil {
			f.t.Fatal(err)
		}
		all[o.GetLabels()[fleet.ClusterLabel]] = job
	}
	return all
}

func (f *fleetTest) run(args ...string) ran {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	return f.runIn(ctx, args...)
}

func (f *fleetTest) runIn(ctx context.Context, args ...string) ran {
	f.t.Helper()
	r := execute(f.t, ctx, f.dir, strings.Join(f.environment, " "), append([]string{"fleet"}, args...)...)
	f.hasNoSecret(r)
	return r
}

// hasNoSecret looks for the token and the key in what a command printed, in files and in objects that are no Secrets.
func (f *fleetTest) hasNoSecret(r ran) {
	f.t.Helper()
	texts := map[string]string{"stdout": r.stdout, "stderr": r.stderr}
	for path, o := range f.All() {
		if data, err := o.MarshalJSON(); err != nil {
			f.t.Fatal(err)
		} else if o.GetKind() != "Secret" {
			texts[path] = string(data)
		}
	}
	err := filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "planted") {
			return err
		}
		data, err := os.ReadFile(path)
		texts[path] = string(data)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for where, text := range texts {
		if strings.Contains(text, fleetToken) || strings.Contains(text, f.key) {
			f.t.Errorf("a secret is in %s:\n%s", where, text)
		}
	}
}

// says runs a command, and checks how it ends and what it says.
func (f *fleetTest) says(exit int, says string, args ...string) ran {
	f.t.Helper()
	r := f.run(args...)
	if r.code != exit || !strings.Contains(r.stdout+r.stderr, says) {
		f.t.Errorf("%v: exit %d, want %d and %q\n%s%s", args, r.code, exit, says, r.stdout, r.stderr)
	}
	return r
}

// refuses is says with exit code 2, where nothing is written.
func (f *fleetTest) refuses(says string, args ...string) {
	f.t.Helper()
	before, files := len(f.Writes()), folderContents(f.t, f.dir)
	f.says(ExitUsage, says, args...)
	if now := f.Writes()[before:]; len(now) > 0 || folderContents(f.t, f.dir) != files {
		f.t.Errorf("%v is refused and has written %v, and the files\n%s", args, now, folderContents(f.t, f.dir))
	}
}

func TestFleetApply(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.says(ExitDone, "2 clusters: 2 done, 0 failed, 0 not begun", "apply")
	if f.order() != "alpha beta" {
		t.Errorf("began %s", f.order())
	}
	for cluster, job := range f.jobs() {
		pod := job.Spec.Template.Spec
		if args := strings.Join(pod.Containers[0].Args, " "); args !=
			"all --skip-doctor --config /config/bootstrap.yaml --state-dir /state" || pod.Containers[0].Image != fleetImage {
			t.Errorf("the Job of %s runs %s %s", cluster, pod.Containers[0].Image, args)
		}
	}
	for name, want := range map[string]string{"demo-token-default/token": fleetToken, fleet.IdentitySecret +
		"/identity": f.key} {
		name, key, _ := strings.Cut(name, "/")
		data, _, _ := unstructured.NestedString(f.Get("v1", "Secret", fleetNamespace, name).Object, "data", key)
		var is []byte
		if err := json.Unmarshal([]byte(`"`+data+`"`), &is); err != nil || string(is) != want {
			t.Errorf("Secret %s does not hold what it should: %v", name, err)
		}
	}
	// The same again: the clusters are done, and every object is as it was.
	was := f.contents()
	f.says(ExitDone, "2 done", "apply")
	if now := f.contents(); now != was || f.order() != "alpha beta" {
		t.Errorf("a second apply began %s, and made of\n%s\nthis:\n%s", f.order(), was, now)
	}
	// With --again each runs once more, and with consent.
	f.says(ExitDone, "2 done", "apply", "--again", "--yes")
	if f.order() != "alpha beta alpha beta" || !slices.Contains(f.jobs()["beta"].Spec.Template.Spec.Containers[0].Args,
		"--yes") {
		t.Errorf("with --again began %s, with %v", f.order(), f.jobs()["beta"].Spec.Template.Spec.Containers[0].Args)
	}
	// One whose entry is another one now runs alone; --cluster leaves out the others.
	f.write("fleet.yaml", strings.ReplaceAll(fleetOfTwo, "- name: ", "- controlPlaneReplicas: 1\n    name: "))
	f.says(ExitDone, "1 clusters: 1 done", "apply", "--cluster", "beta")
	if f.order() != "alpha beta alpha beta beta" {
		t.Errorf("with --cluster beta began %s", f.order())
	}
}

// contents are all objects, but for what every write changes of them.
func (f *fleetTest) contents() string {
	f.t.Helper()
	all := map[string]any{}
	for path, o := range f.All() {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		all[path] = o.Object
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// Tokens come from where the file says, each under its name.
func TestFleetTokens(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "planted")
	if err := os.WriteFile(file, []byte(fleetToken+"-of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFleetTest(t, fleetHead+"tokens:\n  a: {file: "+file+"}\n  b: {command: 'tr e e < "+file+"'}\n"+
		"  c: {secret: given}\n  d: {env: NOT_SET}\nclusters:\n  - {name: one, token: a}\n  - {name: two, token: b}\n"+
		"  - {name: three, token: c}\n  - {name: four, token: d}\n")
	f.refuses("token d of the fleet: the environment variable NOT_SET is not set", "apply", "--cluster", "four")
	f.says(ExitFailed, "Secret fleets/given", "apply", "--cluster", "three")
	if len(f.Writes()) > 0 {
		t.Errorf("without the Secret of a token it has written %v", f.Writes())
	}
	f.Put(kubetest.Object("v1", "Secret", fleetNamespace, "given", map[string]any{"data": map[string]any{
		"token": []byte(fleetToken + "-of-the-secret")}}))
	f.says(ExitDone, "3 done", "apply", "--cluster", "one,two", "--cluster", "three")
	want := map[string]string{"one": "demo-token-a", "two": "demo-token-b", "three": "given"}
	for cluster, job := range f.jobs() {
		if is := job.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef.Name; is != want[cluster] {
			t.Errorf("cluster %s has its token from Secret %s", cluster, is)
		}
		o := f.Get("v1", "Secret", fleetNamespace, want[cluster])
		if o == nil {
			t.Errorf("Secret %s is missing", want[cluster])
			continue
		}
		data, _, _ := unstructured.NestedString(o.Object, "data", "token")
		var is []byte
		if err := json.Unmarshal([]byte(`"`+data+`"`), &is); err != nil || !strings.HasPrefix(string(is),
			fleetToken+"-of-the-") ||
			strings.HasSuffix(string(is), "\n") {
			t.Errorf("Secret %s: %v", want[cluster], err)
		}
	}
	f.write("none", "")
	f.write("fleet.yaml", fleetHead+"tokens:\n  default: {file: /nowhere/token}\nclusters:\n  - name: one\n")
	f.refuses("/nowhere/token", "apply")
	f.write("fleet.yaml", fleetHead+"tokens:\n  default: {command: 'echo no such vault >&2; exit 3'}\nclusters:\n  - name: one\n")
	f.refuses("no such vault", "apply")
	// A file is relative to the folder of the fleet's file.
	if err := os.MkdirAll(filepath.Join(f.dir, "elsewhere"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("elsewhere/token", "a-token-beside-the-file")
	f.write("elsewhere/fleet.yaml", fleetHead+"tokens:\n  default: {file: token}\nclusters:\n  - name: one\n")
	f.says(ExitDone, "1 done", "apply", "elsewhere/fleet.yaml", "--yes")
}

// What is wrong is said with its place and exit code 2, before anything is written.
func TestFleetIsRefused(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.refuses(`has no cluster "alpa"; did you mean alpha?`, "apply", "--cluster", "alpa")
	f.refuses("has no cluster", "plan", "--cluster", "gamma")
	f.refuses("CONTROL_PLANE_REPLICAS is not taken by the commands of fleet", "apply", "CONTROL_PLANE_REPLICAS=3")
	f.refuses("CONTROL_PLANE", "apply", "CONTROL_PLANE=3")
	f.refuses("other.yaml", "apply", "other.yaml")
	f.refuses("MANAGEMENT_KUBECONFIG", "apply", "MANAGEMENT_KUBECONFIG=nowhere")
	f.refuses("MANAGEMENT_KUBECONFIG", "status", "MANAGEMENT_KUBECONFIG=nowhere")
	f.refuses("run without --lab", "render", "--lab")
	f.write("fleet.yaml", strings.ReplaceAll(fleetOfTwo, "- name: ", "- location: nowhere at all\n    name: "))
	f.refuses("fleet.yaml:9:", "apply")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, "skipDoctor: true\n", "", 1))
	f.refuses("cluster beta: networkCidr 10.10.0.0/16 overlaps that of cluster alpha", "apply")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, "image: "+fleetImage+"\n", "", 1))
	f.refuses("image is missing", "apply")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, "skipDoctor: true\n", "skipDoctor: true\nqueue: none\n", 1))
	f.refuses("queue none is no LocalQueue", "apply")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, "- name: ",
		"- ciliumRepository: https://user:geheim@example.org/charts\n    name: ", 1))
	f.refuses("an address in its configuration has a password", "apply")
	for namespace, says := range map[string]string{"fleets": "the fleet's own", "fleets-beta": "the state of cluster beta",
		"kube-system": "one of Kubernetes itself"} {
		f.write("fleet.yaml", strings.Replace(fleetOfTwo, "- name: ", "- namespace: "+namespace+"\n    name: ", 1))
		f.refuses("cluster alpha: namespace "+namespace+" is", "apply")
		f.refuses(says, "plan")
	}
	f.write("fleet.yaml", fleetOfTwo)
	f.refuses("token default is read on this machine", "render")
	complete := f.environment
	f.environment = complete[1:]
	f.refuses("a fleet needs a management cluster: name its kubeconfig in MANAGEMENT_KUBECONFIG", "apply")
	f.environment = slices.Concat(complete[:1], complete[2:])
	f.refuses("token default of the fleet: the environment variable FLEET_TOKEN is not set", "apply")
	f.write("token", "two words")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, "env: FLEET_TOKEN", "file: token", 1))
	f.refuses("/token gives no Hetzner token: it has 2 words", "apply")
	f.write("fleet.yaml", fleetOfTwo)
	f.environment = complete[:2]
	f.refuses("age-keygen -o key.txt", "apply")
	f.refuses("STATE_IDENTITY_FILE", "apply", "STATE_IDENTITY_FILE=nowhere")
	f.environment = complete
	f.says(ExitFailed, "nothing was ever applied", "status")
	f.says(ExitFailed, "nothing was ever applied", "logs", "alpha")
	f.says(ExitFailed, "nothing was ever applied", "advance", "demo", "--namespace", fleetNamespace)
	f.says(ExitDone, "has no clusters: nothing was done", "destroy")
	if len(f.Writes()) > 0 {
		t.Errorf("at last it has written %v", f.Writes())
	}
	f.Readyz = func() (int, string) { return http.StatusInternalServerError, "[-]etcd failed" }
	f.says(ExitFailed, "the management cluster at", "apply")
}

// The key that the states were written with stays.
func TestFleetKeyToTheStates(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.says(ExitDone, "2 done", "apply")
	was := f.environment
	f.environment = was[:2]
	f.says(ExitDone, "2 done", "apply") // that in the management cluster
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	f.write("planted-key", other.String())
	f.refuses("Secret fleets/slipway-state-identity has another key", "apply", "STATE_IDENTITY_FILE=planted-key")
	f.environment = append(slices.Clone(was[:2]), settings.StateIdentityVariable+"="+other.String())
	f.refuses("Secret fleets/slipway-state-identity has another key", "apply")
	f.environment = was[:2]
	f.write("planted-key", f.key)
	f.says(ExitDone, "2 done", "apply", "STATE_IDENTITY_FILE=planted-key")
}

// What is rendered is a Job that applies the fleet, with its file, and no Secret.
func TestFleetRender(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	file := strings.Replace(fleetOfTwo, "env: FLEET_TOKEN", "secret: hetzner", 1)
	f.write("fleet.yaml", file)
	r := f.says(ExitDone, "#   hetzner (token)\n#   slipway-state-identity (identity)\n", "render")
	kinds, names := map[string]unstructured.Unstructured{}, map[string]bool{}
	for document := range strings.SplitSeq(r.stdout, "---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if name := o.GetKind() + " " + o.GetName(); names[name] && o.GetKind() != "" {
			t.Errorf("%s is rendered twice", name)
		} else {
			names[name] = true
		}
		kinds[o.GetKind()] = o
	}
	job, files := kinds["Job"], kinds["ConfigMap"]
	if _, is := kinds["Secret"]; is || kinds["ServiceAccount"].Object == nil || job.GetName() != files.GetName() {
		t.Errorf("rendered:\n%s", r.stdout)
	}
	data, _, _ := unstructured.NestedString(files.Object, "binaryData", fleet.FleetFile)
	if is, err := base64.StdEncoding.DecodeString(data); err != nil || string(is) != file {
		t.Errorf("the fleet's file is %q, %v", is, err)
	}
	// It makes no request, and renders the same again; another file is another Job.
	f.environment = nil
	if again := f.run("render"); again.code != ExitDone || again.stdout != r.stdout {
		t.Errorf("without an environment: %+v", again)
	}
	f.write("fleet.yaml", file+"retries: 1\n")
	if other := f.run("render"); strings.Contains(other.stdout, job.GetName()) {
		t.Errorf("another file has a Job of the same name:\n%s", other.stdout)
	}
}

// A token of another value, maybe of another project, is not given to all clusters of the fleet without consent.
func TestFleetTokenOfAnotherValue(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.says(ExitDone, "2 done", "apply")
	was := f.environment
	f.environment = append(slices.Clone(was), "FLEET_TOKEN="+fleetToken+"-another")
	f.refuses("is another one than in Secret fleets/demo-token-default", "apply")
	f.says(ExitDone, "2 done", "apply", "--yes")
	f.environment = was
	f.refuses("is another one than in Secret fleets/demo-token-default", "apply")
}

// A token that may only read is written nowhere, neither as the first one nor, with consent, in place of another.
func TestFleetTokenForReadingIsNotWritten(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	writes := f.environment
	reads := append(slices.Clone(writes), "FLEET_TOKEN="+fleetToken+readOnlyToken)
	f.environment = reads
	f.refuses("token default of the fleet: the Hetzner token is not written into Secret fleets/demo-token-default",
		"apply")
	if f.environment = writes; f.Get("v1", "Secret", fleetNamespace, "demo-token-default") != nil {
		t.Error("the token was written")
	}
	f.says(ExitDone, "2 done", "apply")
	was := f.contents()
	f.environment = reads
	f.refuses("create a token with read and write permission", "apply", "--yes")
	if is := f.contents(); is != was {
		t.Errorf("a refused apply changed something: was\n%s\nis\n%s", was, is)
	}
}

// A rehearsal of what cannot become ready in a lab is refused before the lab starts.
func TestFleetNotInLab(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo+"    gitea: true\n    addons: [hcloud-csi]\n")
	r := f.run("apply", "--lab")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "cluster beta: Gitea and the add-on hcloud-csi") ||
		!strings.Contains(r.stderr, "leave it out of addons in ") || !strings.Contains(r.stderr, "fleet.yaml") {
		t.Errorf("%+v", r)
	}
}

// A rollout is stopped, and goes on with the next apply.
func TestFleetStop(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.fails["alpha"] = true
	f.says(ExitFailed, "1 failed, 1 not begun", "apply")
	f.says(ExitDone, "no further cluster is begun: 1 clusters have failed", "status")
	f.says(ExitDone, "begins no further cluster", "stop")
	f.says(ExitDone, "no further cluster is begun: the rollout was stopped", "status")
	f.mu.Lock()
	clear(f.fails)
	f.mu.Unlock()
	f.says(ExitDone, "2 done", "apply")
}

func TestFleetFailure(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.fails["alpha"] = true
	r := f.says(ExitFailed, "2 clusters: 0 done, 1 failed, 1 not begun", "apply")
	for _, want := range []string{"1 clusters have failed, and maxFailures is 0", "log of alpha: ", "fleet logs alpha",
		"the same command again"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("it does not say %q:\n%s", want, r.stderr)
		}
	}
	f.says(ExitDone, "first line of demo-alpha-", "logs", "alpha")
	f.says(ExitDone, "BackoffLimitExceeded", "status")
	f.play(func() { clear(f.fails) })
	f.says(ExitDone, "2 done", "apply")
	if f.order() != "alpha alpha beta" {
		t.Errorf("began %s", f.order())
	}
}

func TestFleetOutputJSON(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	r := f.run("apply", "--output", "json")
	done := map[string]bool{}
	for line := range strings.Lines(r.stdout) {
		var s fleet.ClusterStatus
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Cluster == "" || s.Phase == "" || s.Job == "" {
			t.Errorf("%v: %s", err, line)
		}
		done[s.Cluster] = s.Phase == fleet.Done
	}
	if r.code != ExitDone || len(done) != 2 || !done["alpha"] || !done["beta"] {
		t.Errorf("%+v", r)
	}
	var s operations.Report
	r = f.run("status", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || s.Kind != "fleetStatus" || s.Fleet != "demo" ||
		len(s.Status) != 2 || s.Status[1].Cluster != "beta" || s.Status[1].Phase != fleet.Done {
		t.Errorf("%v: %+v", err, r)
	}
}

// An interrupted apply leaves the Job that has begun at work, and the same command goes on.
func TestFleetInterruptedAndContinued(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	ctx, cancel := contextWithCause(t)
	f.holds, f.begin = true, func() { cancel(&interruption{os.Interrupt}) }
	if r := f.runIn(ctx, "apply"); r.code != ExitInterrupted || !strings.Contains(r.stderr,
		"Jobs that have begun go on") ||
		!strings.Contains(r.stderr, "fleet status") {
		t.Errorf("%+v", r)
	}
	r := f.says(ExitDone, "running", "status")
	if !strings.Contains(r.stdout, "last line") || !strings.Contains(r.stdout, "waiting") || f.order() != "alpha" {
		t.Errorf("began %s:\n%s", f.order(), r.stdout)
	}
	f.says(ExitFailed, "no Pod of its Job", "logs", "beta")
	f.refuses(`has no change of a cluster "alfa"; did you mean alpha?`, "logs", "alfa")
	// Another change of the cluster that is at work is refused.
	f.write("fleet.yaml", strings.ReplaceAll(fleetOfTwo, "- name: ", "- controlPlaneReplicas: 1\n    name: "))
	before := len(f.Writes())
	f.says(ExitFailed, "other changes of these clusters are at work", "apply")
	if now := f.Writes()[before:]; len(now) > 0 {
		t.Errorf("and %v written", now)
	}
	f.write("fleet.yaml", fleetOfTwo)
	job := f.jobs()["alpha"].Name
	f.play(func() {
		f.holds, f.begin = false, func() {}
		f.end(job, false)
	})
	f.says(ExitDone, "2 clusters: 2 done", "apply")
	if f.order() != "alpha beta" {
		t.Errorf("began %s", f.order())
	}
}

func TestFleetDetached(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	r := f.says(ExitDone, "begins one cluster after another", "apply", "--detach")
	if f.order() != "" {
		t.Errorf("began %s", f.order())
	}
	name := strings.TrimPrefix(strings.Fields(r.stdout)[1], fleetNamespace+"/")
	coordinator := f.Get("batch/v1", "Job", fleetNamespace, name)
	if coordinator == nil {
		t.Fatalf("there is no Job of the name in %q", r.stdout)
	}
	f.says(ExitDone, name, "apply", "--detach") // it is there
	if now := f.Get("batch/v1", "Job", fleetNamespace, name); now.GetUID() != coordinator.GetUID() {
		t.Error("a second command has made the Job anew")
	}
	f.environment = f.environment[:1] // a coordinator has neither token nor key
	containers, _, _ := unstructured.NestedSlice(coordinator.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	f.says(ExitDone, "2 done", args[1:]...)
	if f.order() != "alpha beta" {
		t.Errorf("began %s", f.order())
	}
}

func TestFleetDestroy(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.says(ExitDone, "2 done", "apply")
	before := len(f.Writes())
	f.says(ExitFailed, "with their servers, load balancers and networks: alpha, beta", "destroy")
	for _, answer := range []string{"", "yes\n", "dem\n"} {
		if r := at(t, f.dir, strings.Join(f.environment, " "), answer, "fleet", "destroy"); r.code != ExitFailed ||
			!strings.Contains(r.stderr, "Type the fleet's name, demo") {
			t.Errorf("%q: %+v", answer, r)
		}
	}
	f.refuses(`has changed no cluster "betta"; did you mean beta?`, "destroy", "--cluster", "betta", "--yes")
	if now := f.Writes()[before:]; len(now) > 0 || f.order() != "alpha beta" {
		t.Errorf("without consent began %s, written %v", f.order(), now)
	}
	// A cluster that is not in the file any more is left as it is, and named.
	f.write("fleet.yaml", strings.TrimSuffix(fleetOfTwo, "  - name: beta\n"))
	if r := f.says(ExitDone, "1 done", "apply"); !strings.Contains(r.stderr, "left as they are: beta") ||
		!strings.Contains(r.stderr, "fleet destroy --cluster beta") {
		t.Errorf("%s", r.stderr)
	}
	f.environment = f.environment[:1] // by what is in the management cluster alone
	f.says(ExitDone, "1 clusters: 1 done", "destroy", "--cluster", "beta", "--yes")
	job := f.jobs()["beta"]
	if args := job.Spec.Template.Spec.Containers[0].Args; args[0] != "destroy" || !slices.Contains(args, "--yes") ||
		f.order() != "alpha beta beta" {
		t.Errorf("began %s, with %v", f.order(), args)
	}
	if f.Get("v1", "ConfigMap", fleetNamespace, job.Name) != nil {
		t.Error("the configuration of a cluster that is destroyed is still there")
	}
	f.environment = append(f.environment, "FLEET_TOKEN="+fleetToken)
	if r := f.says(ExitDone, "1 done", "apply"); strings.Contains(r.stderr, "beta") {
		t.Errorf("it was destroyed, and is named: %s", r.stderr)
	}
	f.says(ExitDone, "1 clusters: 1 done", "destroy", "--yes")
	f.says(ExitDone, "has no clusters", "destroy", "--yes")
	f.says(ExitDone, "1 done", "apply") // it is created again
	if f.order() != "alpha beta beta alpha alpha" {
		t.Errorf("began %s", f.order())
	}
}

// The price of a fleet is that of its clusters together, and nothing is written.
func TestFleetPlan(t *testing.T) {
	market := newMarket(t)
	f := newFleetTest(t, strings.Replace(fleetOfTwo, "- name: beta", "- controlPlaneReplicas: 1\n    name: beta", 1))
	f.environment = append(f.environment, "HCLOUD_ENDPOINT="+market.URL)
	files := folderContents(t, f.dir)
	plan := func(args ...string) (p operations.Forecast) {
		t.Helper()
		r := f.run(append([]string{"plan", "--output", "json"}, args...)...)
		if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || r.code != ExitDone {
			t.Fatalf("%v: %+v", err, r)
		}
		return p
	}
	alpha, beta, both := plan("--cluster", "alpha"), plan("--cluster", "beta"), plan()
	if alpha.Monthly != 25 || beta.Monthly >= alpha.Monthly || beta.Monthly <= 0 ||
		both.Monthly != alpha.Monthly+beta.Monthly ||
		both.Currency != "EUR" || len(both.Clusters) != 2 || !both.Changes ||
		!both.Unpriced { // the image has no price of its own
		t.Errorf("alpha %v, beta %v, both %v %s", alpha.Monthly, beta.Monthly, both.Monthly, both.Currency)
	}
	for _, c := range both.Clusters { // the state is read in a folder that is removed afterwards
		if !strings.HasSuffix(c.State, " of the management cluster") || c.Environment != statedir.EnvironmentHetzner ||
			!slices.Contains([]string{"alpha", "beta"}, c.Cluster) {
			t.Errorf("cluster %q, environment %q, state %q", c.Cluster, c.Environment, c.State)
		}
	}
	r := f.says(ExitDone, fmt.Sprintf("what is created costs %.2f EUR a month", both.Monthly), "plan")
	if strings.Count(r.stdout, "creates the cluster") != 2 || !strings.Contains(r.stdout, "25.00 EUR and more") {
		t.Errorf("%s", r.stdout)
	}
	if len(market.Writes())+len(f.Writes()) > 0 || folderContents(t, f.dir) != files {
		t.Errorf("planning has written %v, %v", market.Writes(), f.Writes())
	}
	// At a terminal apply shows the plan, and asks once.
	if r := at(t, f.dir, strings.Join(f.environment, " "), "no\n", "fleet", "apply"); r.code != ExitFailed ||
		strings.Count(r.stderr, "Go ahead? [yes/no]") != 1 || !strings.Contains(r.stdout, "what is created costs") ||
		len(f.Writes()) > 0 {
		t.Errorf("after a no it has written %v: %+v", f.Writes(), r)
	}
	if r := at(t, f.dir, strings.Join(f.environment, " "), "yes\n", "fleet", "apply"); r.code != ExitDone ||
		f.order() != "alpha beta" {
		t.Errorf("after a yes began %s: %+v", f.order(), r)
	}
	if args := f.jobs()["alpha"].Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--yes") {
		t.Errorf("a run of what was agreed to has the arguments %v", args)
	}
}
