package test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// upgradeMoments are where an upgrade is killed: what a run says there, and in which stage. The others than those of a
// sample are killed with ALL_MOMENTS set.
func upgradeMoments() []struct {
	step, says string
	sample     bool
} {
	return []struct {
		step, says string
		sample     bool
	}{
		{"providers", "upgrading", true},
		{"image", "Step 7", false},
		{"talos", "applying HCloudMachineTemplate", false},
		{"talos", "TalosControlPlane default/k8s-control-plane: Talos", false},
		{"talos", "is held until then", true},
		{"talos", "is being deleted", false},
		{"kubernetes-1-33-13", " of 3 servers", true}, // where it is written: see neverReady
		{"hcloud-ccm", "writing Secret", false},
		{"wait-releases", "", true}, // all versions are those of the set
	}
}

// upgraded upgrades a cluster that manages itself from the guide's version set to that of September 2026: Talos, then
// Kubernetes over one minor version. It is killed and run again, a new server that never becomes Ready stops it, and
// what was written before is still there.
func upgraded(t *testing.T, c *command, older string) {
	before := workload(t, c)
	kept, err := before.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"written": "with " + older}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Collect(maps.Keys(c.apiVersions(t.Context())))
	c.storesState()
	u := &upgrading{t: t, command: c, set: "2026-09"}
	u.refusals()
	u.inPlace(first)
	watched := watchEtcd(t, c)
	u.killed("talos", "--pause-after", "talos")
	u.finish(0, "--pause-after", "talos")
	for server, version := range c.apiVersions(t.Context()) {
		if slices.Contains(first, server) || version != older {
			t.Errorf("after Talos, server %s, of %v, runs %s", server, first, version)
		}
	}
	u.neverReady()
	u.killed("")
	o := u.finish(0)
	if !strings.Contains(o.output, "requests, one every 100ms") {
		t.Errorf("it does not say whether the API answered\n%s", o.output)
	}
	watched.oneAtATime(t, 3, 3)
	c.onlyVersion(t, 3)
	after := workload(t, c)
	is, err := after.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || is.UID != kept.UID || is.Data["written"] != kept.Data["written"] {
		t.Errorf("what was written before is %v, %v", is, err)
	}
	nodes, err := after.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 3 {
		t.Errorf("%d Nodes, %v", len(nodes.Items), err)
	}
	for _, n := range nodes.Items {
		if i := n.Status.NodeInfo; i.KubeletVersion != newerKubernetes || i.OSImage != "Talos (v1.13.9)" {
			t.Errorf("Node %s reports %s on %s", n.Name, i.KubeletVersion, i.OSImage)
		}
	}
	u.again()
	// The lab knows at its next start what its servers need, whatever is configured then.
	c.lab("down")
	c.lab("up")
	if is := c.onlyVersion(t, 3); is != newerKubernetes {
		t.Errorf("after a restart the servers run %s", is)
	}
}

// upgrading runs the upgrade of one cluster.
type upgrading struct {
	*command
	t     *testing.T
	set   string // that the cluster gets
	kills int
}

func (u *upgrading) upgrade(watch func(event, *os.Process), more ...string) outcome {
	return u.run(watch, append([]string{"upgrade", "--to-set", u.set, "--lab", "--yes"}, more...)...)
}

// killed ends runs with SIGKILL at each moment, up to that of a stage; empty: of all that are left.
func (u *upgrading) killed(last string, more ...string) {
	moments := upgradeMoments()
	all := os.Getenv(crashVariable) != ""
	for ; u.kills < len(moments) && (last == "" || moments[u.kills].step != "kubernetes-1-33-13"); u.kills++ {
		m := moments[u.kills]
		if !all && !m.sample {
			continue
		}
		u.kill(event{Step: m.step, Message: m.says}, more...)
	}
}

// kill ends a run with SIGKILL when a step says something.
func (u *upgrading) kill(at event, more ...string) {
	u.t.Helper()
	if o, n := u.killFirst([]event{at}, more...); n < 0 {
		u.t.Fatalf("it was not killed in %s at %q: exit %d\n%s", at.Step, at.Message, o.exit, o.end())
	}
}

// killFirst ends a run with SIGKILL at the first of the moments that it comes to, and says which: what a step says, or one
// of several things with | between them. -1: it comes to none.
func (u *upgrading) killFirst(moments []event, more ...string) (o outcome, n int) {
	n = -1
	o = u.upgrade(func(e event, p *os.Process) {
		if n >= 0 {
			return
		}
		at := slices.IndexFunc(moments, func(m event) bool {
			return e.Step == m.Step && slices.ContainsFunc(strings.Split(m.Message, "|"), func(says string) bool {
				return strings.Contains(e.Message, says)
			})
		})
		if at >= 0 && p.Kill() == nil {
			n = at
		}
	}, more...)
	if o.exit == 0 {
		return o, -1
	}
	if n >= 0 {
		u.t.Logf("killed in %s at %q after %.0fs", moments[n].Step, moments[n].Message, o.elapsed.Seconds())
	}
	return o, n
}

func (u *upgrading) finish(exit int, more ...string) outcome {
	o := u.upgrade(nil, more...)
	u.t.Logf("upgrade %v: exit %d after %.0fs", more, o.exit, o.elapsed.Seconds())
	if o.exit != exit {
		u.t.Fatalf("upgrade %v: exit %d\n%s", more, o.exit, o.end())
	}
	for _, e := range o.events {
		if strings.Contains(e.Message, "the API") {
			u.t.Log(e.Message)
		}
	}
	return o
}

// refusals are upgrades that do not begin, and change nothing.
func (u *upgrading) refusals() {
	u.t.Helper()
	for _, tt := range []struct {
		exit int
		says string
		args []string
	}{
		{2, "no such version set", []string{"--to-set", "newest", "--lab"}},
		{2, "has no stage", []string{"--to-set", "2026-09", "--lab", "--yes", "--pause-after", "kuberntes"}},
		{1, "would be a downgrade", []string{"--lab", "--yes", "KUBERNETES_VERSION=v1.31.4"}},
		{2, "Talos v1.12 is for Kubernetes v1.30 to v1.35", []string{"--lab", "--yes", "KUBERNETES_VERSION=v1.36.0"}},
	} {
		if o := u.run(nil, append([]string{"upgrade"}, tt.args...)...); o.exit != tt.exit || !strings.Contains(o.output, tt.says) {
			u.t.Errorf("%v: exit %d, want %d and %q\n%s", tt.args, o.exit, tt.exit, tt.says, o.output)
		}
	}
	u.budget()
	out, err := u.exec(u.t.Context(), "upgrade", "--to-set", "2026-09", "--lab", "--dry-run")
	if err != nil || !strings.Contains(out, "kubernetes-1-33-13") {
		u.t.Errorf("--dry-run: %v\n%s", err, out)
	}
}

// budget has a PodDisruptionBudget allow no eviction of a Pod of the Hetzner cloud controller manager, for as long as an
// upgrade is refused because of it.
func (u *upgrading) budget() {
	u.t.Helper()
	client := workload(u.t, u.command)
	budgets := client.PolicyV1().PodDisruptionBudgets("kube-system")
	ccm, err := client.AppsV1().Deployments("kube-system").Get(u.t.Context(), "hcloud-cloud-controller-manager",
		metav1.GetOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	none := intstr.FromInt32(0)
	if _, err := budgets.Create(u.t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: ccm.Spec.Selector}},
		metav1.CreateOptions{}); err != nil {
		u.t.Fatal(err)
	}
	eventually(u.t, "the budget to be reckoned", time.Minute, func(ctx context.Context) string {
		b, err := budgets.Get(ctx, "stays", metav1.GetOptions{})
		if err != nil || b.Status.ExpectedPods == 0 {
			return fmt.Sprintf("%+v, %v", b.Status, err)
		}
		return ""
	})
	o := u.upgrade(nil)
	for _, says := range []string{"PodDisruptionBudget kube-system/stays", "hcloud-cloud-controller-manager"} {
		if o.exit != 1 || !strings.Contains(o.output, says) {
			u.t.Errorf("with a budget that allows nothing: exit %d, want 1 and %q\n%s", o.exit, says, o.output)
		}
	}
	if err := budgets.Delete(u.t.Context(), "stays", metav1.DeleteOptions{}); err != nil {
		u.t.Error(err)
	}
}

// inPlace brings a patch release of Talos to the servers that there are. A run that is killed between two servers is
// resumed; afterwards the control plane provider has nothing to replace, and a run of all nothing to name.
func (u *upgrading) inPlace(servers []string) {
	u.t.Helper()
	const version = "v1.12.5"
	args := []string{"upgrade", "--in-place", "TALOS_VERSION=" + version, "--lab", "--yes"}
	if o := u.run(nil, "upgrade", "--in-place", "--to-set", "2026-09", "--lab", "--yes"); o.exit != 1 ||
		!strings.Contains(o.output, "is another minor version") {
		u.t.Errorf("in place to another minor version: exit %d\n%s", o.exit, o.end())
	}
	killed := false
	o := u.run(func(e event, p *os.Process) {
		if !killed && strings.Contains(e.Message, "1 of 3 servers run") {
			killed = p.Kill() == nil
		}
	}, args...)
	if !killed {
		u.t.Fatalf("it was not killed between two servers: exit %d\n%s", o.exit, o.end())
	}
	o = u.run(nil, args...)
	u.t.Logf("upgrade --in-place, resumed: exit %d after %.0fs", o.exit, o.elapsed.Seconds())
	if o.exit != 0 || strings.Contains(o.output, "upgrading the Talos of server "+slices.Min(servers)) {
		u.t.Fatalf("upgrade --in-place, resumed: exit %d\n%s", o.exit, o.end())
	}
	if o := u.run(nil, "all", "--lab", "TALOS_VERSION="+version); o.exit != 0 ||
		strings.Contains(o.output, "and the cluster has") {
		u.t.Errorf("all with the new version: exit %d\n%s", o.exit, o.end())
	}
	nodes, err := workload(u.t, u.command).CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	var is []string
	for _, n := range nodes.Items {
		if n.Status.NodeInfo.OSImage != "Talos ("+version+")" {
			u.t.Errorf("Node %s reports %s", n.Name, n.Status.NodeInfo.OSImage)
		}
		is = append(is, n.Name)
	}
	slices.Sort(is)
	if slices.Sort(servers); !slices.Equal(is, servers) {
		u.t.Errorf("the servers are %v, before %v", is, servers)
	}
}

// neverReady keeps the network's agents from new nodes: no new node becomes Ready, and the upgrade stops at the first
// of them, with all servers of before. When the agents may run again, it is resumed.
func (u *upgrading) neverReady() {
	u.t.Helper()
	client := workload(u.t, u.command)
	nodes, err := client.CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, fmt.Sprintf("%q", n.Name))
	}
	u.agents(client, fmt.Sprintf(`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions"`+
		`:[{"key":"kubernetes.io/hostname","operator":"In","values":[%s]}]}]}}`, strings.Join(names, ",")))
	o := u.finish(1, "CONTROL_PLANE_TIMEOUT=45s", "NODES_TIMEOUT=30s")
	for _, says := range []string{"not Ready", "no further server is replaced"} {
		if !strings.Contains(o.output, says) {
			u.t.Errorf("it does not say %q\n%s", says, o.output)
		}
	}
	now, err := client.CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{})
	if err != nil || len(now.Items) != len(nodes.Items)+1 {
		u.t.Errorf("there are %d nodes, %v", len(now.Items), err)
	}
	u.aborted(names)
	u.agents(client, "null")
	u.kill(event{Step: "kubernetes-1-33-13", Message: "TalosControlPlane default/k8s-control-plane: Kubernetes"})
}

// aborted undoes an upgrade whose first new server is not Ready: killed once it has put the TalosControlPlane back, and
// run again. The nodes of before are left, and the next upgrade begins anew.
func (u *upgrading) aborted(before []string) {
	u.t.Helper()
	abort := []string{"upgrade", "--abort", "--lab", "--yes"}
	killed := u.run(func(e event, p *os.Process) {
		if strings.Contains(e.Message, "version v1.33.13 → ") && strings.HasPrefix(e.Message, "TalosControlPlane") {
			_ = p.Kill()
		}
	}, abort...)
	if killed.exit == 0 {
		u.t.Fatalf("abort was not killed\n%s", killed.end())
	}
	if o := u.run(nil, abort...); o.exit != 0 {
		u.t.Fatalf("abort: exit %d\n%s", o.exit, o.end())
	}
	nodes, err := workload(u.t, u.command).CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != len(before) || slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return !slices.Contains(before, fmt.Sprintf("%q", n.Name))
	}) {
		u.t.Errorf("after the abort there are %d nodes, before it %v; %v", len(nodes.Items), before, err)
	}
	if o := u.run(nil, abort...); o.exit != 1 ||
		!strings.Contains(o.output, "no server of the control plane is being replaced") {
		u.t.Errorf("a second abort: exit %d\n%s", o.exit, o.end())
	}
	if said, err := u.exec(u.t.Context(), "status", "--lab"); said == "" || strings.Contains(said, "an upgrade to") {
		u.t.Errorf("status still names the upgrade: %v\n%s", err, said)
	}
}

// agents gives the network's agents a node affinity.
func (u *upgrading) agents(client kubernetes.Interface, affinity string) {
	u.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":%s}}}}}`, affinity)
	eventually(u.t, "the API server to take the agents' affinity", time.Minute, func(ctx context.Context) string {
		_, err := client.AppsV1().DaemonSets("kube-system").Patch(ctx, "cilium", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// again runs what follows an upgrade: the same command does nothing, and with the new versions configured a run of all
// changes nothing in the cluster.
func (u *upgrading) again() {
	u.t.Helper()
	if o := u.finish(0); !strings.Contains(o.output, "there is nothing to upgrade") {
		u.t.Errorf("run again, it does not say that there is nothing to do\n%s", o.output)
	}
	before := slices.Sorted(maps.Keys(u.apiVersions(u.t.Context())))
	o := u.run(nil, "all", "--lab", "VERSIONS="+u.set)
	if o.exit != 0 || strings.Contains(o.output, "and the cluster has") {
		u.t.Errorf("all with the new versions: exit %d\n%s", o.exit, o.end())
	}
	if after := slices.Sorted(maps.Keys(u.apiVersions(u.t.Context()))); !slices.Equal(before, after) {
		u.t.Errorf("a run of all has changed the servers: %v, before %v", after, before)
	}
}
