package steps

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
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
	"github.com/slipway-k8s/slipway/internal/client/gitea/giteatest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// giteaWorld is an environment whose Gitea answers behind a Pod, with a configuration for it. The administrator's
// Secret is there, with the password that the API knows.
func giteaWorld(t *testing.T) (*clustertest.Environment, *giteatest.Server, config.Config) {
	t.Helper()
	w, api := clustertest.New(t), giteatest.New()
	t.Cleanup(api.Close)
	w.Workload.Forward = func(namespace, pod, port string) string {
		if namespace != "gitea" || pod != "gitea-0" || port != "3000" {
			t.Errorf("port %s of Pod %s/%s is asked for", port, namespace, pod)
		}
		return api.Listener.Addr().String()
	}
	w.Workload.Put(kubetest.Object("v1", "Service", config.GiteaNamespace, config.GiteaService, clustertest.Map{
		"spec": clustertest.Map{"selector": clustertest.Map{"app": "gitea"}}}))
	w.Workload.Put(kubetest.Object("v1", "Pod", config.GiteaNamespace, "gitea-0", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{"app": "gitea"}},
		"status":   clustertest.Map{"conditions": []any{clustertest.Map{"type": "Ready", "status": "True"}}}}))
	w.Workload.Put(giteaAdminSecret(giteatest.Password))
	cfg := w.Config()
	cfg.Gitea = "true"
	return w, api, cfg
}

func giteaAdminSecret(password string) *unstructured.Unstructured {
	return kubetest.Object("v1", "Secret", config.GiteaNamespace, config.GiteaAdminSecret, clustertest.Map{
		"data": clustertest.Map{"username": base64.StdEncoding.EncodeToString([]byte(giteatest.User)),
			"password": base64.StdEncoding.EncodeToString([]byte(password))}})
}

// kept is a value of the Secret with the token; empty: there is none.
func kept(t *testing.T, w *clustertest.Environment, key string) string {
	t.Helper()
	o := w.Workload.Get("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret)
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

// The Secret has a token of Gitea, which stays the same; no output, log or journal has it, and nobody owns the Secret.
func TestGiteaToken(t *testing.T) {
	w, api, cfg := giteaWorld(t)
	journal := flow.Memory()
	run := func(journal flow.Journal) []string {
		t.Helper()
		report, err := runTargets(t, w, cfg, w.Tools(), journal, "gitea-token")
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	if got := run(journal); !slices.Contains(got, "addon-gitea") || !slices.Contains(got, "gitea-token") {
		t.Fatalf("%v ran", got)
	}
	token := kept(t, w, "token")
	all := api.Tokens()
	if len(all) != 1 || all[0].Value != token || !slices.Equal(all[0].Scopes, []string{"read:repository"}) ||
		!strings.HasPrefix(all[0].Name, "slipway.k8s.") || kept(t, w, "url") != cfg.GiteaURL() {
		t.Fatalf("tokens %v; the Secret has %q", all, token)
	}
	secret := w.Workload.Get("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret)
	if len(secret.GetOwnerReferences()) > 0 || secret.GetLabels()["app.kubernetes.io/managed-by"] == "Helm" {
		t.Errorf("somebody owns the Secret: %v", secret)
	}
	before := w.Writes()
	if got := run(journal); len(got) > 0 || w.Writes() != before {
		t.Errorf("nothing changed, and %v ran", got)
	}
	run(flow.Memory()) // the journal is lost
	if len(api.Tokens()) != 1 || kept(t, w, "token") != token {
		t.Errorf("without a journal: %v", api.Tokens())
	}
	record, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, entry := range record.Steps {
		if bytes.Contains(entry.Output, []byte(token)) || bytes.Contains(entry.Output, []byte(giteatest.Password)) {
			t.Errorf("the journal of %s has a secret", name)
		}
	}
	if strings.Contains(w.Log.String(), token) {
		t.Error("the log has the token")
	}

	// The token is written again where it is gone, and the one of before is deleted.
	w.Workload.Remove("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret)
	if got := run(journal); !slices.Contains(got, "gitea-token") || slices.Contains(got, "addon-gitea") ||
		len(api.Tokens()) != 1 || api.Tokens()[0].Value == token || kept(t, w, "token") != api.Tokens()[0].Value {
		t.Errorf("without the Secret: %v ran, %v", got, api.Tokens())
	}
}

// A token that is in the Secret wins, whoever wrote it; one that Gitea does not know is named. A Secret without a token
// keeps what else it has.
func TestGiteaTokenOfSomeoneElse(t *testing.T) {
	w, api, cfg := giteaWorld(t)
	w.Workload.Put(kubetest.Object("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret, clustertest.Map{
		"data": clustertest.Map{"token": base64.StdEncoding.EncodeToString([]byte("of-the-operator"))}}))
	var said []string
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clustertest.Run(t, plan.Graph, []string{"gitea-token"}, flow.Memory(), func(e flow.Event) {
		said = append(said, e.Message)
	}); err != nil {
		t.Fatal(err)
	}
	if kept(t, w, "token") != "of-the-operator" || len(api.Tokens()) != 0 ||
		!strings.Contains(strings.Join(said, "\n"), "note: Gitea does not know the token in Secret gitea/gitea-token") {
		t.Errorf("%q; %v; said %q", kept(t, w, "token"), api.Tokens(), said)
	}
	w.Workload.Put(kubetest.Object("v1", "Secret", config.GiteaNamespace, config.GiteaTokenSecret, clustertest.Map{
		"data": clustertest.Map{"token": "", "ca": base64.StdEncoding.EncodeToString([]byte("own"))}}))
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-token"); err != nil {
		t.Fatal(err)
	}
	if len(api.Tokens()) != 1 || kept(t, w, "token") != api.Tokens()[0].Value || kept(t, w, "ca") != "own" {
		t.Errorf("%q; %v; ca %q", kept(t, w, "token"), api.Tokens(), kept(t, w, "ca"))
	}
}

// Two runs that mint at the same moment end with one token, the same for both.
func TestGiteaTokenOfTwoRuns(t *testing.T) {
	w, api, cfg := giteaWorld(t)
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "addon-gitea"); err != nil {
		t.Fatal(err)
	}
	var here sync.WaitGroup // neither mints before both have seen that there is no token
	here.Add(2)
	api.Before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost {
			here.Done()
			here.Wait()
		}
		return 0, ""
	}
	set, err := NewSet(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	workload := workloadOf(t, set)
	outputs, errs := make([]GiteaToken, 2), make([]error, 2)
	var both sync.WaitGroup
	for i := range outputs {
		both.Go(func() { outputs[i], errs[i] = set.runGiteaToken(t.Context(), clustertest.Silent, workload) })
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	all := api.Tokens()
	if len(all) != 1 || outputs[0] != outputs[1] || kept(t, w, "token") != all[0].Value ||
		outputs[0].Fingerprint != fingerprint(all[0].Value) {
		t.Errorf("%v and %v; tokens %v, the Secret has %q", outputs[0], outputs[1], all, kept(t, w, "token"))
	}
}

// A run may end at every request that changes something: after the next there is one token, and nothing is left over.
func TestGiteaTokenAfterAnEndedRun(t *testing.T) {
	for _, at := range []string{"mint", "mint, not answered", "Secret", "Secret, not answered"} {
		t.Run(at, func(t *testing.T) {
			w, api, cfg := giteaWorld(t)
			fails := at != "Secret, not answered"
			if fails {
				cfg.GiteaTimeout = config.Duration(300 * time.Millisecond)
			}
			var ended atomic.Bool
			ended.Store(true)
			api.Before = func(r *http.Request) (int, string) {
				if ended.Load() && (at == "mint" && r.Method == http.MethodPost || r.Method == http.MethodDelete) {
					panic(http.ErrAbortHandler)
				}
				return 0, ""
			}
			api.After = func(r *http.Request) bool {
				return !ended.Load() || at != "mint, not answered" || r.Method != http.MethodPost
			}
			w.Workload.Fail = func(r *http.Request) (int, string) {
				if ended.Load() && at == "Secret" && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/gitea/secrets") {
					return http.StatusInternalServerError, "ended"
				}
				return 0, ""
			}
			_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-token")
			if (err != nil) != fails {
				t.Fatalf("the first run: %v", err)
			}
			first := kept(t, w, "token")
			ended.Store(false)
			cfg.GiteaTimeout = config.Defaults().GiteaTimeout
			if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-token"); err != nil {
				t.Fatal(err)
			}
			if all := api.Tokens(); len(all) != 1 || all[0].Value != kept(t, w, "token") || first != "" &&
				first != all[0].Value {
				t.Errorf("tokens %v; the Secret has %q", all, kept(t, w, "token"))
			}
		})
	}
}

// The wait for a Gitea that does not answer ends in its time, and says what was asked, where, and what to do. A
// password that is not the administrator's ends it at once.
func TestGiteaThatDoesNotAnswer(t *testing.T) {
	w, api, cfg := giteaWorld(t)
	var silent atomic.Bool
	silent.Store(true)
	api.Before = func(r *http.Request) (int, string) {
		if silent.Load() {
			<-r.Context().Done()
		}
		return 0, ""
	}
	t.Cleanup(api.CloseClientConnections)
	cfg.GiteaTimeout = config.Duration(500 * time.Millisecond)
	began := time.Now()
	_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-token")
	var late *wait.TimeoutError
	if !errors.As(err, &late) || late.Within != cfg.GiteaTimeout.D() || time.Since(began) > 50*time.Second {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
	for _, want := range []string{"GET /api/v1/version at Gitea (Pod gitea/gitea-0, port 3000)", "bootstrap logs gitea",
		"GITEA_TIMEOUT"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if kept(t, w, "token") != "" || len(api.Tokens()) != 0 {
		t.Errorf("it minted: %v", api.Tokens())
	}

	silent.Store(false)
	cfg.GiteaTimeout = config.Defaults().GiteaTimeout
	w.Workload.Put(giteaAdminSecret("another-password"))
	_, err = runTargets(t, w, cfg, w.Tools(), flow.Memory(), "gitea-token")
	if err == nil || !strings.Contains(err.Error(), "password in Secret gitea/gitea-admin is not the administrator's") ||
		strings.Contains(err.Error(), "another-password") {
		t.Errorf("another password: %v", err)
	}
}

// The administrator's Secret is made once, with a password of its own, before the chart that reads it.
func TestGiteaAdmin(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.Gitea = "true"
	journal := flow.Memory()
	var found bool
	w.Workload.SetReact(func(o *unstructured.Unstructured) {
		if o.GetKind() == "Deployment" && o.GetName() == "gitea" {
			found = w.Workload.Get("v1", "Secret", config.GiteaNamespace, config.GiteaAdminSecret) != nil
		}
		w.ReactWorkload(o)
	})
	password := func() string {
		secret := w.Workload.Get("v1", "Secret", config.GiteaNamespace, config.GiteaAdminSecret)
		if secret == nil {
			return ""
		}
		text, _, _ := unstructured.NestedString(secret.Object, "data", "password")
		return text
	}
	run := func(journal flow.Journal) []string {
		t.Helper()
		report, err := runTargets(t, w, cfg, w.Tools(), journal, "addon-gitea")
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	run(journal)
	first := password()
	if !found || len(first) < 60 {
		t.Errorf("before the chart: %v; %d characters", found, len(first))
	}
	run(flow.Memory())
	if got := run(journal); len(got) > 0 || password() != first {
		t.Errorf("%v ran, or there is another password", got)
	}
	w.Workload.Remove("v1", "Secret", config.GiteaNamespace, config.GiteaAdminSecret)
	if got := run(journal); !slices.Contains(got, "addon-gitea") || password() == "" || password() == first {
		t.Errorf("without the Secret %v ran", got)
	}
}

// What consumes the token is after its step: Flux, and add-ons that are installed after Gitea. Gitea is after
// hcloud-csi, which makes its volume.
func TestGiteaOrder(t *testing.T) {
	w, _, cfg := giteaWorld(t)
	own := ownAddon(w)
	own.After = []string{config.AddonGitea}
	cfg.Addons = config.Addons{own, {Name: config.AddonCSI}}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, cfg.FluxVersion), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, cfg.FluxVersion), "install.yaml", fluxManifest)
	cfg.GitOps, cfg.FluxRepository, cfg.GitURL = config.GitOpsFlux, dir, "https://git.example.com/fleet.git"
	if problems := cfg.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	if _, err := clustertest.Run(t, plan.Graph, []string{"flux", "addons"}, flow.Memory(), func(e flow.Event) {
		if e.Kind == flow.StepDone {
			done = append(done, e.Step)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]string{{"addon-hcloud-csi", "addon-gitea", "gitea-token", "addon-shop", "addons"},
		{"gitea-token", "flux"}} {
		for i := 1; i < len(order); i++ {
			if a, b := slices.Index(done, order[i-1]), slices.Index(done, order[i]); a < 0 || b < a {
				t.Errorf("%s is not done after %s: %v", order[i], order[i-1], done)
			}
		}
	}
	if !slices.Contains(plan.Bootstrap, "gitea-token") || !slices.Contains(plan.All, "gitea-token") ||
		!slices.Contains(plan.Managed, "gitea-token") {
		t.Error("a target does not want the token")
	}
}
