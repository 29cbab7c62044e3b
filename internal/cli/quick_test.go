//go:build unix

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/crash"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest/fakeenv"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Variables of the environment of the quick crash test.
const (
	quickCommand   = "SLIPWAY_QUICK_COMMAND"   // set: this test binary is the command
	quickSchedules = "SLIPWAY_QUICK_SCHEDULES" // how many random schedules; by default quickSample
	quickSeed      = "SLIPWAY_QUICK_SEED"      // of the first schedule; by default the day
)

const (
	quickSample = 20 // how many schedules every run of the tests has
	shortOf     = 3  // go test -short tries one in so many places and schedules, others every day
)

// leftOut reports whether go test -short leaves a place out.
func leftOut(i int) bool { return testing.Short() && i%shortOf != quickDay()%shortOf }

// TestMain makes the command of this binary when it is asked to, so that it can be killed.
func TestMain(m *testing.M) {
	if os.Getenv(quickCommand) != "" {
		os.Exit(beTheCommand())
	}
	if os.Getenv(serveCommand) != "" {
		os.Exit(beServe())
	}
	os.Exit(m.Run())
}

// beTheCommand is main, with stand-ins for Talos and clusterctl.
func beTheCommand() int {
	workDir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitFailed
	}
	c := &console{
		stdout: os.Stdout, stderr: os.Stderr, environment: settings.Environ(os.Environ()), workDir: workDir,
		size: func() (int, int) { return terminalSize(os.Stdout) }, hide: &redact.Redactor{}, equip: equipQuickly,
		readFaults: crash.Reader,
	}
	go func() { // the other end never writes; it ends with the process that started this
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(ExitFailed)
	}()
	ctx, stop := UntilSignal(os.Stderr)
	defer stop()
	return c.execute(ctx, os.Args[1:])
}

func quickPlan() fakeenv.Plan {
	d := config.Defaults()
	return fakeenv.Plan{
		Cluster: d.ClusterName, Namespace: config.DefaultNamespace, ControlPlane: d.ControlPlaneName(), Image: d.Image("amd64"),
		Replicas: d.ControlPlaneReplicas,
	}
}

func equipQuickly(t *platform.Tools) {
	t.Talos = func([]byte) (talos.Client, error) { return quickTalos{}, nil }
	t.Clusterctl = func(context.Context, clusterctlconfig.Client, string) (platform.Clusterctl, error) {
		return quickClusterctl{t}, nil
	}
}

// quickTalos answers on every address as a healthy node of the cluster. What it does not answer no bootstrap asks.
type quickTalos struct{ talos.Client }

func (quickTalos) Ask(context.Context, talos.Route) (talos.Node, error) {
	return talos.Node{Version: config.Defaults().TalosVersion, Etcd: "Running", Healthy: true}, nil
}

func (q quickTalos) LocalEtcdMembers(ctx context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	return q.EtcdMembers(ctx, r)
}

func (quickTalos) EtcdMembers(context.Context, talos.Route) (all []talos.EtcdMember, err error) {
	for i := range quickPlan().Replicas {
		all = append(all, talos.EtcdMember{Name: fmt.Sprintf("%s-%d", quickPlan().ControlPlane, i)})
	}
	return all, nil
}

// quickClusterctl installs, by calls that the run writes down like its own.
type quickClusterctl struct{ tools *platform.Tools }

func (c quickClusterctl) Init(ctx context.Context, o clusterctl.InitOptions) ([]clusterctl.Components, error) {
	kubeconfig, err := os.ReadFile(o.Kubeconfig.Path)
	if err != nil {
		return nil, err
	}
	cluster, err := kube.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	d := config.Defaults()
	return nil, fakeenv.Install(ctx, cluster, []fakeenv.Provider{
		{Label: "cluster-api", Version: d.CAPIVersion}, {Label: "bootstrap-talos", Version: d.CABPTVersion},
		{Label: "control-plane-talos", Version: d.CACPPTVersion}, {Label: "infrastructure-hetzner", Version: d.CAPHVersion},
	})
}

func (quickClusterctl) ApplyUpgrade(context.Context, clusterctl.ApplyUpgradeOptions) error {
	return errors.New("the fake environment does not upgrade")
}

func (quickClusterctl) CertManager(string) (cluster.CertManagerClient, error) {
	return nil, errors.New("the fake environment has no cert-manager")
}

func (quickClusterctl) CoreContract(context.Context, string) (string, error) {
	return "", errors.New("the fake environment does not upgrade")
}

// quick is one cluster of the fake environment with the command that creates it.
type quick struct {
	*fakeenv.Environment
	dir, charts string
	folder      string        // the state folder in dir; empty: state
	environment []string      // more of it
	stdout      *os.File      // nil: it goes nowhere
	took        time.Duration // of the last run
	stderr      string        // of the last run
}

// quickCharts serves the charts of all cases.
func quickCharts(t *testing.T) string {
	t.Helper()
	d := config.Defaults()
	s, err := fakeenv.Charts(t.TempDir(),
		fakeenv.Chart{Name: bootstrap.Cilium().Name, Version: d.CiliumVersion, Kind: "DaemonSet"},
		fakeenv.Chart{Name: bootstrap.HCloudCCM().Name, Version: d.HCloudCCMVersion, Kind: "Deployment"},
		fakeenv.Chart{Name: bootstrap.TalosCCM().Name, Version: d.TalosCCMVersion, Kind: "DaemonSet",
			More: "---\napiVersion: talos.dev/v1alpha1\nkind: ServiceAccount\nmetadata: {name: secrets}\n"},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL
}

func newQuick(t *testing.T, charts string) *quick {
	t.Helper()
	return newQuickOf(t, charts, quickPlan())
}

func newQuickOf(t *testing.T, charts string, plan fakeenv.Plan) *quick {
	t.Helper()
	w, err := fakeenv.New(plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	q := &quick{Environment: w, dir: t.TempDir(), charts: charts}
	if err := os.WriteFile(filepath.Join(q.dir, "kubeconfig"), w.Management.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return q
}

func (q *quick) state() statedir.Dir {
	return statedir.Dir(filepath.Join(q.dir, cmp.Or(q.folder, "state")))
}

// killed is what ProcessState says in the place of an exit code.
const killed = -1

// run runs the command once, to its end or its death.
func (q *quick) run(t *testing.T, d death) (code int) {
	t.Helper()
	c := quickRun{
		dir: q.dir, death: d, stdout: q.stdout,
		args: []string{"bootstrap", "firewall", "firewall-apply", "--state-dir", string(q.state()),
			"FIREWALL_ALLOW=203.0.113.0/24",
			"CILIUM_REPOSITORY=" + q.charts, "HCLOUD_CCM_REPOSITORY=" + q.charts, "TALOS_CCM_REPOSITORY=" + q.charts,
			"MANAGEMENT_KUBECONFIG=" + filepath.Join(q.dir, "kubeconfig")},
		environment: append([]string{settings.EndpointVariable + "=" + q.Hetzner.URL}, q.environment...),
	}
	code = c.run(t)
	q.took, q.stderr = c.took, c.stderr
	return code
}

// quickRun is one run of the command as a process of its own.
type quickRun struct {
	dir               string // its working directory and home
	args, environment []string
	death             death
	stdout            *os.File // nil: it goes nowhere

	took   time.Duration
	stderr string
}

// run returns the exit code, or killed.
func (q *quickRun) run(t *testing.T) (code int) {
	t.Helper()
	d := q.death
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A hang is a failure, not a wait for the end of the tests. Beside other tests, at a low priority, a command that
	// takes a second has taken more than a minute.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, q.args...)
	cmd.Dir = q.dir
	cmd.Env = []string{
		"HOME=" + q.dir, "PATH=" + os.Getenv("PATH"), quickCommand + "=1", settings.TokenVariable + "=" + hetznertest.Token,
		effect.CrashVariable + "=" + d.places,
	}
	cmd.Env = append(cmd.Env, q.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The Go runtime answers SIGQUIT with what each goroutine waits for.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }, 10*time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if q.stdout != nil {
		cmd.Stdout = q.stdout
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if d.after > 0 {
		timer := time.AfterFunc(d.after, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	q.took, q.stderr = time.Since(began), stderr.String()
	if ctx.Err() != nil {
		t.Fatalf("the command hangs: %s", q.stderr)
	}
	if err == nil {
		return ExitDone
	}
	return cmd.ProcessState.ExitCode()
}

// keys are the calls of the runs so far, each once, in their order.
func (q *quick) keys(t *testing.T) []string {
	t.Helper()
	return effectKeys(t, q.state())
}

// effectKeys are the calls of all runs of a state folder, each once, in their order.
func effectKeys(t *testing.T, state statedir.Dir) []string {
	t.Helper()
	var keys []string
	for _, file := range runFilesOf(t, state, statedir.EffectsFile) {
		for line := range bytes.Lines(file) {
			var l effect.Line
			// the last may be torn
			if json.Unmarshal(line, &l) == nil && l.Phase == effect.Leaves && !slices.Contains(keys, l.Key()) {
				keys = append(keys, l.Key())
			}
		}
	}
	return keys
}

// files are the files of this name of all runs, in their order.
func (q *quick) files(t *testing.T, name string) [][]byte {
	t.Helper()
	return runFilesOf(t, q.state(), name)
}

// runFilesOf are the files of this name of all runs of a state folder, in their order.
func runFilesOf(t *testing.T, state statedir.Dir, name string) (all [][]byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(state.Path(statedir.RunsFolder), "*", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

// sound checks what must be so after any run, however it ended.
func (q *quick) sound(t *testing.T) {
	t.Helper()
	if _, err := q.state().Journal().Load(t.Context()); err != nil {
		t.Errorf("the journal: %v", err)
	}
}

// repeated lists the steps that ran again after they were done.
func (q *quick) repeated(t *testing.T) (again []string) {
	t.Helper()
	done := map[string]bool{}
	for _, file := range q.files(t, statedir.EventsFile) {
		for line := range bytes.Lines(file) {
			var e flow.Event
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			if e.Step == session.DoctorTask {
				continue // it only looks, at what every run would meet
			}
			if e.Kind == flow.StepStarted && done[e.Step] {
				again = append(again, e.Step+": "+e.Message)
			}
			done[e.Step] = done[e.Step] || e.Kind == flow.StepDone
		}
	}
	return again
}

// death is where or when the command dies.
type death struct {
	places string        // as effect.CrashVariable has them, whichever comes first; empty: none
	after  time.Duration // 0: never
}

// nextDeath draws a death. Most are around a call: one that an undisturbed run would still make, or one of the last,
// which the recovery from them may make again. Some are at any time.
func nextDeath(random *rand.Rand, keys, seen []string, whole time.Duration) death {
	if random.IntN(4) == 0 {
		return death{after: time.Duration(1 + random.Int64N(int64(whole)))}
	}
	ahead := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(seen, key) })
	near := append(slices.Clone(seen[max(0, len(seen)-4):]), ahead...)
	if len(near) == 0 {
		near = keys
	}
	var places []string
	for range 1 + random.IntN(2) {
		points := effect.Points()
		places = append(places, fmt.Sprintf("%s %s", points[random.IntN(len(points))], near[random.IntN(len(near))]))
	}
	return death{places: strings.Join(places, "\n")}
}

func quickNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// undisturbedQuick is what an undisturbed bootstrap in the fake environment does and leaves.
type undisturbedQuick struct {
	keys        []string // of the calls that change something
	whole       time.Duration
	environment string
}

func quickUndisturbed(t *testing.T, charts string) undisturbedQuick {
	t.Helper()
	calm := newQuick(t, charts)
	if code := calm.run(t, death{}); code != ExitDone {
		t.Fatalf("undisturbed it ends with %d: %s", code, calm.stderr)
	}
	u := undisturbedQuick{calm.keys(t), calm.took, calm.look()}
	t.Logf("an undisturbed bootstrap takes %s and makes %d calls that change something", u.whole.Round(time.Millisecond),
		len(u.keys))
	return u
}

// finishes lets the command end: the environment is then as an undisturbed run leaves it, and nothing was created or
// done twice.
func (q *quick) finishes(t *testing.T, undisturbed undisturbedQuick) {
	t.Helper()
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("at last it ends with %d: %s", code, q.stderr)
	}
	q.sound(t)
	if again := q.repeated(t); len(again) > 0 {
		t.Errorf("done, and run again: %q", again)
	}
	if got := q.look(); got != undisturbed.environment {
		t.Errorf("the environment is another one:\n%s", difference(undisturbed.environment, got))
	}
}

// quickDay is the number of today, which selects what the tests sample.
func quickDay() int { return int(time.Now().Unix() / int64((24*time.Hour)/time.Second)) }

// quickPoints are today's points around a call, or all of them where a number of schedules is asked for.
func quickPoints(key string) []effect.Point {
	points := effect.Points()
	if os.Getenv(quickSchedules) != "" {
		return points
	}
	h := fnv.New32()
	h.Write([]byte(key)) // never fails
	return []effect.Point{points[(int(h.Sum32())+quickDay())%len(points)]}
}

// TestQuickEffects kills the command at every call of a bootstrap that changes something, once, at another point each
// day; with a number of schedules, at all points.
func TestQuickEffects(t *testing.T) {
	charts := quickCharts(t)
	undisturbed := quickUndisturbed(t, charts)
	var tried, died counter
	places := 0
	t.Run("killed", func(t *testing.T) {
		for _, key := range undisturbed.keys {
			for _, point := range quickPoints(key) {
				if places++; leftOut(places) {
					continue
				}
				place := fmt.Sprintf("%s %s", point, key)
				t.Run(place, func(t *testing.T) {
					t.Parallel()
					tried.add()
					q := newQuick(t, charts)
					if q.run(t, death{places: place}) == killed {
						died.add()
					} else {
						t.Logf("it did not come to that: %s", q.stderr)
					}
					q.sound(t)
					q.finishes(t, undisturbed)
				})
			}
		}
	})
	t.Logf("%d calls, killed at %d of %d points", len(undisturbed.keys), died.n.Load(), tried.n.Load())
	if died.n.Load() != tried.n.Load() {
		t.Errorf("of %d points only %d came", tried.n.Load(), died.n.Load())
	}
}

// TestQuickCrashes kills the command at random places and times, two to five times, and lets it finish.
func TestQuickCrashes(t *testing.T) {
	charts := quickCharts(t)
	undisturbed := quickUndisturbed(t, charts)
	first := quickNumber(t, quickSeed, quickDay())
	n := quickSample
	if testing.Short() {
		n /= shortOf
	}
	n = quickNumber(t, quickSchedules, n)
	var died counter
	t.Run("schedules", func(t *testing.T) {
		for i := range n {
			seed := first + i
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				q := newQuick(t, charts)
				random := rand.New(rand.NewPCG(uint64(seed), 0))
				var deaths []death
				for range 2 + random.IntN(4) {
					d := nextDeath(random, undisturbed.keys, q.keys(t), undisturbed.whole)
					deaths = append(deaths, d)
					if q.run(t, d) == killed {
						died.add()
					}
					q.sound(t)
				}
				q.finishes(t, undisturbed)
				if t.Failed() {
					t.Logf("the deaths were %+v", deaths)
				}
			})
		}
	})
	t.Logf("%d schedules from seed %d, %d deaths", n, first, died.n.Load())
	if int(died.n.Load()) < n { // two are usual; how many come depends on how fast the machine is
		t.Errorf("only %d deaths in %d schedules", died.n.Load(), n)
	}
}
