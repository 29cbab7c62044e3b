package steps

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/gitea/giteatest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
)

// giteaFluxWorld is an environment with Gitea and Flux, and a configuration in which Flux applies a repository of it.
func giteaFluxWorld(t *testing.T) (*clustertest.Environment, *giteatest.Server, config.Config) {
	t.Helper()
	w, api, cfg := giteaWorld(t)
	controllers := &fluxControllers{w: w, revision: "main@sha1:1234", trouble: map[string]string{}}
	w.Workload.SetReact(controllers.react)
	dir := t.TempDir()
	write(t, filepath.Join(dir, cfg.FluxVersion), "install.yaml", fluxManifest)
	cfg.GitOps, cfg.FluxRepository = config.GitOpsFlux, dir
	return w, api, cfg
}

func fluxCredential(t *testing.T, w *clustertest.Environment, key string) string {
	t.Helper()
	o := fluxObject(w, "Secret")
	if o == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", key)
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// The repository begins with the releases of the cluster, and Flux reads it with Gitea's token. A second run changes
// nothing, one without its journal finds everything, and what is deleted is there again.
func TestGiteaRepository(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	journal := flow.Memory()
	run := func(journal flow.Journal) []string {
		t.Helper()
		report, err := runTargets(t, w, cfg, w.Tools(), journal, "flux-sync")
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	if got := run(journal); !slices.Contains(got, "gitea-repository") || !slices.Contains(got, "flux-sync") {
		t.Fatalf("%v ran", got)
	}
	is := api.Repository("fleet")
	if is == nil || !is.Private || len(is.Branches["main"]) != 1 {
		t.Fatalf("the repository is %+v", is)
	}
	for file, want := range map[string]string{
		"clusters/k8s/infrastructure/cilium.yaml": "releaseName: cilium", "clusters/k8s/apps/gitea.yaml": "prune: disabled",
		"clusters/k8s/infrastructure/talos-ccm.yaml": "version: " + cfg.TalosCCMVersion,
		"clusters/k8s/kustomization.yaml":            "apps.yaml"} {
		if !strings.Contains(is.Files("main")[file], want) {
			t.Errorf("%s does not say %q:\n%s", file, want, is.Files("main")[file])
		}
	}
	const url = "http://gitea-http.gitea.svc.cluster.local:3000/gitea_admin/fleet.git"
	if got, _, _ := unstructured.NestedString(fluxObject(w, "GitRepository").Object, "spec", "url"); got != url {
		t.Errorf("Flux reads %s", got)
	}
	if token := kept(t, w, "token"); fluxCredential(t, w, "password") != token || fluxCredential(t, w, "username") !=
		giteatest.User || token == "" {
		t.Error("Flux does not read it with Gitea's token")
	}

	writes := w.Writes()
	if got := run(journal); len(got) > 0 || w.Writes() != writes {
		t.Errorf("nothing changed, and %v ran", got)
	}
	run(flow.Memory())
	if now := api.Repository("fleet"); now.ID != is.ID || len(now.Branches["main"]) != 1 || len(api.Tokens()) != 1 {
		t.Errorf("without a journal: %+v", now)
	}
	api.RemoveRepository("fleet")
	if got := run(journal); !slices.Contains(got, "gitea-repository") || slices.Contains(got, "gitea-token") ||
		slices.Contains(got, "addon-gitea") || api.Repository("fleet") == nil {
		t.Errorf("the repository is gone, and %v ran", got)
	}
	cfg.GiteaRepository = "another"
	if got := run(journal); !slices.Equal(got, []string{"flux-sync", "gitea-repository"}) ||
		api.Repository("another") == nil {
		t.Errorf("another name, and %v ran", got)
	}
	w.Workload.Remove("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret)
	if got := run(journal); !slices.Contains(got, "gitea-token") || !slices.Contains(got, "flux-sync") ||
		fluxCredential(t, w, "password") != kept(t, w, "token") {
		t.Errorf("another token, and %v ran", got)
	}
	giteaSecretsAreHidden(t, w, api, journal)
}

// giteaSecretsAreHidden fails where a secret is in the journal, the log or the repository.
func giteaSecretsAreHidden(t *testing.T, w *clustertest.Environment, api *giteatest.Server, journal flow.Journal) {
	t.Helper()
	record, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token := kept(t, w, "token")
	for name, entry := range record.Steps {
		if bytes.Contains(entry.Output, []byte(token)) || bytes.Contains(entry.Output, []byte(giteatest.Password)) {
			t.Errorf("the journal of %s has a secret", name)
		}
	}
	if log := w.Log.String(); strings.Contains(log, token) || strings.Contains(log, giteatest.Password) {
		t.Error("the log has a secret")
	}
	for name, content := range api.Repository("fleet").Files("main") {
		if strings.Contains(content, token) || strings.Contains(content, giteatest.Password) {
			t.Errorf("%s has a secret", name)
		}
	}
}

// GIT_URL wins: then Gitea gets no repository.
func TestGitURLWinsOverGitea(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	cfg.GitURL = "https://git.example.com/fleet.git"
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if plan.GiteaRepository != nil {
		t.Error("the plan has the step gitea-repository")
	}
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "flux-sync"); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(fluxObject(w, "GitRepository").Object, "spec", "url"); got != cfg.GitURL ||
		api.Repository("fleet") != nil {
		t.Errorf("Flux reads %s", got)
	}
}

// A value that is a secret is not committed: its HelmRelease names a Secret, which the step has created before. One that
// exists stays as it is.
func TestValuesThatGitMustNotHave(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	write(t, w.Tools().Overrides, "bootstrap/addons/gitea-values.yaml", "own: {password: planted-secret, user: me}\n")
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "flux-sync"); err != nil {
		t.Fatal(err)
	}
	file := api.Repository("fleet").Files("main")["clusters/k8s/apps/gitea.yaml"]
	if strings.Contains(file, "planted-secret") || !strings.Contains(file, "name: gitea-values") ||
		!strings.Contains(file, "user: me") {
		t.Errorf("the HelmRelease is\n%s", file)
	}
	values := func() string {
		o := w.Workload.Get("v1", "Secret", flux.Namespace, "gitea-values")
		if o == nil {
			return ""
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", "values.yaml")
		data, _ := base64.StdEncoding.DecodeString(text)
		return string(data)
	}
	if values() != "own:\n  password: planted-secret\n" {
		t.Errorf("the Secret has\n%s", values())
	}
	w.Workload.Put(kubetest.Object("v1", "Secret", flux.Namespace, "gitea-values", clustertest.Map{"data": clustertest.Map{
		"values.yaml": base64.StdEncoding.EncodeToString([]byte("own: {}\n"))}}))
	api.RemoveRepository("fleet")
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "flux-sync"); err != nil {
		t.Fatal(err)
	}
	if values() != "own: {}\n" || api.Repository("fleet") == nil {
		t.Errorf("the Secret of the operator has become\n%s", values())
	}
}

// A token that does not read the repository ends the step at once, with what to do: Flux would wait for good.
func TestTokenThatDoesNotReadTheRepository(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	w.Workload.Put(kubetest.Object("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret, clustertest.Map{
		"data": clustertest.Map{"token": base64.StdEncoding.EncodeToString([]byte("of-the-operator"))}}))
	_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "flux-sync")
	var late *wait.TimeoutError
	if err == nil || errors.As(err, &late) || !strings.Contains(err.Error(), "kubectl delete secret --namespace gitea "+
		"gitea-token") || strings.Contains(err.Error(), "of-the-operator") || fluxObject(w, "GitRepository") != nil {
		t.Errorf("%v", err)
	}
	if len(api.Tokens()) != 0 || kept(t, w, "token") != "of-the-operator" {
		t.Error("the operator's token was replaced")
	}
}

// A branch that a repository does not have is the operator's to create.
func TestRepositoryWithoutTheBranch(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	api.PutRepository(giteatest.Repository{Name: "fleet", Branches: map[string][]giteatest.Commit{
		"prod": {{Files: map[string]string{"a": "b"}}}}})
	_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-repository")
	if err == nil || !strings.Contains(err.Error(), "repository gitea_admin/fleet of Gitea has no branch main") ||
		!strings.Contains(err.Error(), "GIT_BRANCH") || len(api.Repository("fleet").Branches) != 1 {
		t.Errorf("%v", err)
	}
}

// Two runs at once end with one repository, one commit of the tree and one token.
func TestGiteaRepositoryOfTwoRuns(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "addons", "flux"); err != nil {
		t.Fatal(err)
	}
	w.Workload.Remove("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret)
	for _, token := range api.Tokens() { // as before the first run
		api.Remove(token.Name)
	}
	set, err := NewSet(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	var here [2]sync.WaitGroup // neither creates before both have seen that there is nothing
	here[0].Add(2)
	here[1].Add(2)
	api.Before = func(r *http.Request) (int, string) {
		if i := slices.Index([]string{"/api/v1/user/repos", "/api/v1/users/gitea_admin/tokens"}, r.URL.Path); i >= 0 &&
			r.Method == http.MethodPost {
			here[i].Done()
			here[i].Wait()
		}
		return 0, ""
	}
	workload := workloadOf(t, set)
	outputs, errs := make([]GiteaRepository, 2), make([]error, 2)
	var both sync.WaitGroup
	for i := range outputs {
		both.Go(func() {
			if _, err := set.runGiteaToken(t.Context(), clustertest.Silent, workload); err != nil {
				errs[i] = err
				return
			}
			outputs[i], errs[i] = set.runGiteaRepository(t.Context(), clustertest.Silent, workload)
		})
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if is := api.Repository("fleet"); len(is.Branches["main"]) != 1 || outputs[0] != outputs[1] || outputs[0].ID != is.ID ||
		len(api.Tokens()) != 1 || api.Tokens()[0].Value != kept(t, w, "token") {
		t.Errorf("%+v, %v, %v", is, outputs, api.Tokens())
	}
}

// ending ends a run at one of its effects in Gitea's and Flux's steps: nothing that it does after that arrives.
type ending struct {
	at      int // which of them; below 0: none
	applied bool
	end     context.CancelFunc
	mu      sync.Mutex
	seen    []string
	ended   bool
}

func (e *ending) Reached(point effect.Point, line effect.Line) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if point == effect.PointBefore && (strings.HasPrefix(line.Step, "gitea") || strings.HasPrefix(line.Step, "flux")) {
		e.seen = append(e.seen, line.Key())
	}
	if last := len(e.seen) - 1; last == e.at && last >= 0 && line.Key() == e.seen[last] && !e.ended &&
		(point == effect.PointBefore && !e.applied || point == effect.PointApplied && e.applied) {
		e.ended = true
		e.end()
	}
	return "", false
}

func (*ending) Disk(disk flow.Disk, _ func()) flow.Disk { return disk }
func (*ending) End()                                    {}

// A run may end at every effect of Gitea's and Flux's steps, before it leaves and after its answer: the next one ends
// with one repository, one commit, one token and Flux's objects, and the one after that changes nothing.
func TestGiteaFluxEndedAtEveryEffect(t *testing.T) {
	total := 1
	for at := 0; at < total; at++ {
		for _, applied := range []bool{false, true} {
			w, api, cfg := giteaFluxWorld(t)
			journal := flow.Memory()
			run := func(e *ending) error {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				e.end = cancel
				tools := w.Tools()
				tools.Effects = effect.New(effect.Options{Faults: e, Step: flow.StepName})
				plan, err := New(cfg, tools)
				if err != nil {
					t.Fatal(err)
				}
				_, err = plan.Graph.Run(ctx, flow.Options{Journal: journal, Targets: []string{"flux-sync"}})
				return err
			}
			first := &ending{at: at, applied: applied}
			if err := run(first); err == nil && first.ended && at+1 < total {
				t.Errorf("ended at %s, and the run did not fail", first.seen[at])
			}
			if !first.ended {
				t.Fatalf("effect %d of %v was not reached", at, first.seen)
			}
			second := &ending{at: -1}
			if err := run(second); err != nil {
				t.Fatalf("after one that ended at %s: %v", first.seen[at], err)
			}
			if at == 0 && !applied {
				total = len(second.seen)
			}
			is, all := api.Repository("fleet"), api.Tokens()
			if is == nil || len(is.Branches["main"]) != 1 || len(all) != 1 || all[0].Value != kept(t, w, "token") ||
				fluxCredential(t, w, "password") != all[0].Value || fluxObject(w, "Kustomization") == nil {
				t.Errorf("ended at %s (applied: %v): %+v, tokens %v", first.seen[at], applied, is, all)
			}
			third := &ending{at: -1}
			if err := run(third); err != nil || len(third.seen) > 0 {
				t.Errorf("ended at %s: a third run: %v, changes %v", first.seen[at], err, third.seen)
			}
		}
	}
	if total < 8 {
		t.Errorf("only %d effects", total)
	}
}

// A Gitea that answers only after a while is waited for, and nothing that reads its token or its repository is rolled
// out before: neither Flux nor an add-on after it. One that is slower than GITEA_TIMEOUT, which is less than the time for
// the release, ends the run, and none of them is rolled out at all.
func TestSlowGitea(t *testing.T) {
	for name, tt := range map[string]struct {
		answers int32 // after so many requests
		within  time.Duration
		fails   bool
	}{"in time": {answers: 3, within: time.Minute}, "too late": {answers: 1 << 30, within: time.Second, fails: true}} {
		t.Run(name, func(t *testing.T) {
			w, api, cfg := giteaFluxWorld(t)
			own := ownAddon(w)
			own.After = []string{config.AddonGitea}
			cfg.Addons, cfg.GiteaTimeout = config.Addons{own}, config.Duration(tt.within)
			if found := cfg.Validate(); len(found) > 0 {
				t.Fatal(found)
			}
			var asked atomic.Int32
			api.Before = func(*http.Request) (int, string) {
				if asked.Add(1) <= tt.answers {
					return http.StatusServiceUnavailable, "starting"
				}
				return 0, ""
			}
			var early atomic.Bool
			w.Workload.SetReact(func(o *unstructured.Unstructured) {
				consumer := o.GetNamespace() == flux.Namespace || o.GetName() == own.Name
				if consumer && o.GetKind() == "Deployment" && len(api.Tokens()) == 0 {
					early.Store(true)
				}
				(&fluxControllers{w: w, revision: "main@sha1:1", trouble: map[string]string{}}).react(o)
			})
			_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "flux-sync", "addons")
			var late *wait.TimeoutError
			if errors.As(err, &late) != tt.fails || (err != nil) != tt.fails || tt.fails && (late.Within != tt.within ||
				!strings.Contains(err.Error(), "503 Service Unavailable: starting")) {
				t.Fatalf("%v", err)
			}
			if early.Load() {
				t.Error("a consumer was rolled out before the token existed")
			}
			for _, consumer := range []*unstructured.Unstructured{
				w.Workload.Get("apps/v1", "Deployment", flux.Namespace, "source-controller"),
				w.Workload.Get("apps/v1", "Deployment", own.Namespace, own.Name)} {
				if (consumer == nil) != tt.fails {
					t.Errorf("a consumer is %v", consumer)
				}
			}
		})
	}
}

// A Gitea whose Pod is not ready, or that does not answer, has the step run again, which waits for it; it is no reason
// to create anything.
func TestGiteaRepositoryIsVerified(t *testing.T) {
	w, api, cfg := giteaFluxWorld(t)
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-repository"); err != nil {
		t.Fatal(err)
	}
	set, err := NewSet(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	was := GiteaRepository{ID: api.Repository("fleet").ID, Owner: giteatest.User, Name: "fleet"}
	verify := func(want flow.Answer, says string) {
		t.Helper()
		if v := set.verifyGiteaRepository(t.Context(), workloadOf(t, set), was); v.Answer() != want || !strings.Contains(v.String(), says) {
			t.Errorf("%v; want %v, %q", v, want, says)
		}
	}
	verify(flow.AnswerHolds, "")
	var status atomic.Int32
	api.Before = func(r *http.Request) (int, string) {
		if s := int(status.Load()); s > 0 && (s != http.StatusInternalServerError || !strings.HasSuffix(r.URL.Path, "version")) {
			return s, "says the test"
		}
		return 0, ""
	}
	status.Store(http.StatusServiceUnavailable)
	verify(flow.AnswerGone, "does not answer")
	status.Store(http.StatusInternalServerError)
	verify(flow.AnswerUnknown, "500")
	status.Store(0)
	was.ID++
	verify(flow.AnswerGone, "does not exist any more")
	was.ID--
	set.cfg.GitPath = "clusters/other"
	verify(flow.AnswerGone, "has no clusters/other on branch main")
	w.Workload.Change("v1", "Pod", config.GiteaNamespace, "gitea-0", clustertest.Map{"status": clustertest.Map{
		"conditions": []any{clustertest.Map{"type": "Ready", "status": "False"}}}})
	verify(flow.AnswerGone, "none of the 1 Pods")
	w.Workload.Remove("v1", "Secret", config.GiteaNamespace, config.GiteaAdminSecret)
	verify(flow.AnswerGone, config.GiteaAdminSecret)
}
