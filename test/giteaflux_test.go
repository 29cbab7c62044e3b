package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/gitea"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// giteaFluxArguments bootstrap a cluster of one server whose own Gitea has the repository that Flux applies.
var giteaFluxArguments = []string{"--lab", "GITEA=true", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1"}

// giteaFluxSteps are the steps that bring the releases into Git, and Flux.
var giteaFluxSteps = []string{"gitea-token", "flux", "gitea-repository", "flux-sync"}

// handedOver are the releases that Flux manages in the end, with their namespaces.
var handedOver = map[string]string{"cilium": "kube-system", "hcloud-cloud-controller-manager": "kube-system",
	"talos-cloud-controller-manager": "kube-system", "gitea": config.GiteaNamespace}

// TestGiteaFlux bootstraps a cluster whose Gitea has the repository that Flux applies: Flux takes the releases over from
// there. Its programs are in no plain `lab build`: it is skipped where they are not there.
func TestGiteaFlux(t *testing.T) {
	check := exec.Command(buildCommand(t), "lab", "build", "--check", "GITOPS=flux", "GITEA=true")
	check.Dir = repositoryRoot(t)
	if out, err := check.CombinedOutput(); err != nil {
		t.Skipf("%s", out)
	}
	var moments []string
	if t.Run("handed over", func(t *testing.T) { moments = giteaFluxHandsOver(t) }) {
		t.Run("killed", func(t *testing.T) { giteaFluxKilled(t, moments) })
	}
}

// giteaFluxHandsOver returns the moments at which a run can be killed: before and after each effect of the steps.
func giteaFluxHandsOver(t *testing.T) (moments []string) {
	c := newCommand(t)
	if o := c.run(nil, append([]string{"addons"}, giteaFluxArguments...)...); o.exit != 0 {
		t.Fatalf("the add-ons: exit %d\n%s", o.exit, o.end())
	}
	before := podUIDs(t, c, "kube-system", config.GiteaNamespace)
	bootstrap := append([]string{"bootstrap"}, giteaFluxArguments...)
	first := c.run(nil, bootstrap...)
	if first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	done := first.steps("step-done")
	for _, order := range [][]string{giteaFluxSteps, {"gitea-token", "gitea-repository"}} {
		for i := 1; i < len(order); i++ {
			if a, b := slices.Index(done, order[i-1]), slices.Index(done, order[i]); a < 0 || b < a {
				t.Errorf("%s is not done after %s: %v", order[i], order[i-1], done)
			}
		}
	}
	for _, line := range effects(t, c) {
		if !slices.Contains(giteaFluxSteps, line.Step) || line.Nth > 1 {
			continue
		}
		if line.System == effect.Gitea {
			moments = append(moments, "before "+line.Key())
		}
		if line.System == effect.Gitea || line.System == effect.Workload {
			moments = append(moments, "applied "+line.Key())
		}
	}
	g := reachGitea(t, c)
	g.isPrivate(t)
	g.hidden(t, first.output)
	fluxHasTakenOver(t, c, before)

	clone := g.clone(t)
	list := filepath.Join(clone, "clusters/k8s/kustomization.yaml")
	was, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	pushFiles(t, clone, g.token, map[string]string{"clusters/k8s/kustomization.yaml": string(was) + "- commit.yaml\n",
		"clusters/k8s/commit.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-the-commit, namespace: default}\n" +
			"data: {colour: blue}\n"})
	eventually(t, "the commit in the cluster", 4*time.Minute, func(ctx context.Context) string {
		o, err := workload(t, c).CoreV1().ConfigMaps("default").Get(ctx, "of-the-commit", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if o.Data["colour"] != "blue" {
			return fmt.Sprintf("its data are %v", o.Data)
		}
		return ""
	})

	second := c.run(nil, bootstrap...)
	if again := second.steps("step-started"); second.exit != 0 || slices.ContainsFunc(again, func(step string) bool {
		return slices.Contains(append([]string{"cilium", "hcloud-ccm", "talos-ccm", "addon-gitea"}, giteaFluxSteps...), step)
	}) {
		t.Errorf("a second run: exit %d, it has run %v\n%s", second.exit, again, second.output)
	}
	g.unchanged(t, 2)
	fluxHasTakenOver(t, c, before)
	return moments
}

// giteaFluxKilled kills a run at each of the moments.
func giteaFluxKilled(t *testing.T, moments []string) {
	c := newCommand(t)
	if o := c.run(nil, append([]string{"addons"}, giteaFluxArguments...)...); o.exit != 0 {
		t.Fatalf("the add-ons: exit %d\n%s", o.exit, o.end())
	}
	before := podUIDs(t, c, "kube-system", config.GiteaNamespace)
	if len(moments) < 20 {
		t.Errorf("only %d moments: %v", len(moments), moments)
	}
	c.storesState()
	c.killedAt(t, moments, func(string) {}, append([]string{"bootstrap"}, giteaFluxArguments...)...)
	g := reachGitea(t, c)
	g.isPrivate(t)
	g.unchanged(t, 1)
	tokens, err := g.client.Tokens(t.Context(), "slipway.")
	if err != nil || len(tokens) != 1 || !strings.HasSuffix(g.token, tokens[0].Ends) {
		t.Errorf("the tokens are %v, %v", tokens, err)
	}
	fluxHasTakenOver(t, c, before)
}

// podUIDs are the UIDs of some namespaces' Pods on nodes that exist, by their names: Kubernetes deletes those of a node
// that was removed up to a minute and a half later.
func podUIDs(t *testing.T, c *command, namespaces ...string) map[string]string {
	t.Helper()
	cluster := workload(t, c).CoreV1()
	nodes, err := cluster.Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, namespace := range namespaces {
		pods, err := cluster.Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			t.Fatalf("%d Pods in %s, %v", len(pods.Items), namespace, err)
		}
		for _, p := range pods.Items {
			exists := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName })
			if exists && p.DeletionTimestamp == nil {
				all[namespace+"/"+p.Name] = string(p.UID)
			}
		}
	}
	return all
}

// samePods asserts that Pods of some namespaces are those from before.
func samePods(t *testing.T, c *command, before map[string]string, namespaces ...string) {
	t.Helper()
	after := podUIDs(t, c, namespaces...)
	same := true
	for name, uid := range before {
		if after[name] != uid {
			t.Errorf("Pod %s was %s and is %q", name, uid, after[name])
			same = false
		}
	}
	if same {
		return
	}
	for _, namespace := range namespaces {
		events, err := workload(t, c).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			t.Logf("%s %s %s/%s: %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind, namespace,
				e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// fluxHasTakenOver waits until Flux has made a second revision of each release, and asserts that the Pods are the same
// and that none of their containers was restarted.
func fluxHasTakenOver(t *testing.T, c *command, before map[string]string) {
	t.Helper()
	for name, namespace := range handedOver {
		records := storage.Init(driver.NewSecrets(workload(t, c).CoreV1().Secrets(namespace)))
		eventually(t, "Flux to take over "+name, 5*time.Minute, func(context.Context) string {
			is, err := records.Last(name)
			switch {
			case err != nil:
				return err.Error()
			case is.Version != 2 || is.Info.Status != "deployed":
				return fmt.Sprintf("revision %d is %s", is.Version, is.Info.Status)
			}
			return ""
		})
	}
	samePods(t, c, before, "kube-system", config.GiteaNamespace)
	pods, err := workload(t, c).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("container %s of Pod %s/%s was restarted %d times", s.Name, p.Namespace, p.Name, s.RestartCount)
			}
		}
	}
}

// reachedGitea is a cluster's Gitea, by a port of this machine that leads to its Pod.
type reachedGitea struct {
	c               *command
	address         string // host and port
	user, password  string
	token           string
	client          *gitea.Client
	repositoryOwned string // user/name
}

// reachGitea forwards a port to Gitea, as kubectl port-forward does.
func reachGitea(t *testing.T, c *command) *reachedGitea {
	t.Helper()
	kubeconfig, err := os.ReadFile(filepath.Join(c.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.Connect(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := cluster.ReadyPodOf(t.Context(), config.GiteaNamespace, config.GiteaService)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return cluster.DialPod(ctx, config.GiteaNamespace, pod, config.GiteaPort)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := dial(context.Background(), "", "")
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, from) }()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	g := &reachedGitea{c: c, address: listener.Addr().String()}
	g.user, g.password = g.secret(t, config.GiteaAdminSecret, "username"), g.secret(t, config.GiteaAdminSecret, "password")
	g.token, g.repositoryOwned = g.secret(t, config.GiteaTokenSecret, "token"), g.user+"/fleet"
	g.client = gitea.New(&http.Transport{DialContext: dial, DisableKeepAlives: true}, "the test's Gitea", g.user, g.password)
	return g
}

func (g *reachedGitea) secret(t *testing.T, name, key string) string {
	t.Helper()
	o, err := workload(t, g.c).CoreV1().Secrets(config.GiteaNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Data[key])
}

func (g *reachedGitea) isPrivate(t *testing.T) {
	t.Helper()
	is, err := g.client.Repository(t.Context(), "fleet")
	if err != nil || is == nil || !is.Private {
		t.Fatalf("the repository is %+v, %v", is, err)
	}
}

// unchanged asserts how many commits there are, and that the token is the one of before.
func (g *reachedGitea) unchanged(t *testing.T, commits int) {
	t.Helper()
	if now := g.secret(t, config.GiteaTokenSecret, "token"); now != g.token || len(now) != 40 {
		t.Error("the token is another one")
	}
	count := strings.TrimSpace(git(t, g.clone(t), g.token, "rev-list", "--count", "HEAD"))
	if count != fmt.Sprint(commits) {
		t.Errorf("the repository has %s commits, and not %d", count, commits)
	}
}

// hidden asserts that nothing secret is in the output, in the journal or in Git.
func (g *reachedGitea) hidden(t *testing.T, output string) {
	t.Helper()
	places := map[string]string{"the output": output}
	journal, err := os.ReadFile(filepath.Join(g.c.state, "journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	places["the journal"] = string(journal)
	files, err := filesUnder(filepath.Join(g.clone(t), "clusters"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files in the repository, %v", len(files), err)
	}
	for name, content := range files {
		places[name] = string(content)
	}
	for where, text := range places {
		if strings.Contains(text, g.token) || strings.Contains(text, g.password) {
			t.Errorf("a secret of Gitea is in %s", where)
		}
	}
}

// clone clones the repository, as its administrator.
func (g *reachedGitea) clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, filepath.Dir(dir), g.password, "clone", "--quiet", fmt.Sprintf("http://%s:%s@%s/%s.git", g.user, g.password,
		g.address, g.repositoryOwned), dir)
	return dir
}
