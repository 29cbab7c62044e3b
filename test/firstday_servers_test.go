package test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// eventually polls until nothing is missing.
func eventually(t *testing.T, what string, within time.Duration, missing func(context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		why := missing(ctx)
		if why == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %s later %s", what, within, why)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// clusterServers are the cluster's servers, by name.
func (p project) clusterServers(t *testing.T) []*hcloud.Server {
	t.Helper()
	opts := hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "caph-cluster-k8s==owned"}}
	servers := must(p.Server.AllWithOpts(t.Context(), opts))(t)
	slices.SortFunc(servers, func(a, b *hcloud.Server) int { return strings.Compare(a.Name, b.Name) })
	return servers
}

// allows says whether the firewalls of a server allow an address on a TCP port, as Hetzner's do: without a firewall
// everything is allowed; of several, one rule is enough; what no rule allows is dropped.
func (p project) allows(t *testing.T, server *hcloud.Server, from netip.Addr, port int) bool {
	t.Helper()
	if len(server.PublicNet.Firewalls) == 0 {
		return true
	}
	for _, behind := range server.PublicNet.Firewalls {
		if behind.Status != hcloud.FirewallStatusApplied {
			t.Fatalf("firewall %d of server %s is %s", behind.Firewall.ID, server.Name, behind.Status)
		}
		wall := must(first(p.Firewall.GetByID(t.Context(), behind.Firewall.ID)))(t)
		for _, rule := range wall.Rules {
			if rule.Direction == hcloud.FirewallRuleDirectionIn && rule.Protocol == hcloud.FirewallRuleProtocolTCP &&
				spans(t, *rule.Port, port) &&
				slices.ContainsFunc(rule.SourceIPs, func(n net.IPNet) bool { return n.Contains(from.AsSlice()) }) {
				return true
			}
		}
	}
	return false
}

func first[T any](v T, _ *hcloud.Response, err error) (T, error) { return v, err }

// spans reads a rule's port, one or a range.
func spans(t *testing.T, ports string, port int) bool {
	t.Helper()
	from, to, isRange := strings.Cut(ports, "-")
	if !isRange {
		to = from
	}
	low, lowErr := strconv.Atoi(from)
	high, highErr := strconv.Atoi(to)
	if lowErr != nil || highErr != nil {
		t.Fatalf("a rule's port is %q", ports)
	}
	return low <= port && port <= high
}

// closed asserts that so many servers refuse public addresses on both ports, and let private ones in.
func (d *firstDay) closed(t *testing.T, want int) {
	t.Helper()
	servers := d.clusterServers(t)
	if len(servers) != want {
		t.Errorf("%d servers, not %d", len(servers), want)
	}
	for _, s := range servers {
		for _, port := range []int{6443, 50000} {
			if d.allows(t, s, publicAddress, port) {
				t.Errorf("server %s lets %s in on %d", s.Name, publicAddress, port)
			}
			if !d.allows(t, s, privateAddress, port) {
				t.Errorf("server %s refuses %s on %d", s.Name, privateAddress, port)
			}
		}
	}
}

// openFirewall allows all addresses on 6443, as an operator may do by hand.
func (d *firstDay) openFirewall(t *testing.T) (id int64) {
	t.Helper()
	ctx := t.Context()
	walls := must(d.Firewall.AllWithOpts(ctx,
		hcloud.FirewallListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "slipway-cluster==k8s"}}))(t)
	if len(walls) != 1 {
		t.Fatalf("%d firewalls of the cluster", len(walls))
	}
	_, everybody, _ := net.ParseCIDR("0.0.0.0/0")
	rules := append(walls[0].Rules, hcloud.FirewallRule{
		Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: hcloud.Ptr("6443"),
		SourceIPs: []net.IPNet{*everybody},
	})
	actions := must(first(d.Firewall.SetRules(ctx, walls[0], hcloud.FirewallSetRulesOpts{Rules: rules})))(t)
	if err := d.Action.WaitFor(ctx, actions...); err != nil {
		t.Fatal(err)
	}
	return walls[0].ID
}

// controllerNode is the node that Cluster API's own controller runs on.
func (d *firstDay) controllerNode(t *testing.T) string {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(d.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	if err := must(kube.Connect(config))(t).List(t.Context(), pods, client.InNamespace("capi-system")); err != nil ||
		len(pods.Items) != 1 {
		t.Fatalf("%d Pods in capi-system, %v", len(pods.Items), err)
	}
	return pods.Items[0].Spec.NodeName
}

// vanishedServer deletes the server that Cluster API's controller runs on. Its machine must be replaced: not another
// one, not while a second image blocks it, and through a kill.
func (d *firstDay) vanishedServer(t *testing.T) {
	servers := d.clusterServers(t)
	at := slices.IndexFunc(servers, func(s *hcloud.Server) bool { return s.Name == d.controllerNode(t) })
	if at < 0 {
		t.Fatalf("Cluster API runs on %s, which is none of the servers", d.controllerNode(t))
	}
	gone, other := servers[at], servers[(at+1)%len(servers)]
	before := machineNames(objectsIn(t, d.command, "kubeconfig").Moved)
	refused := func(name string, says ...string) {
		t.Helper()
		o := d.run(nil, "replace-machine", name, "--lab")
		for _, words := range says {
			if o.exit != 1 || !strings.Contains(o.output, words) {
				t.Errorf("replace-machine %s: exit %d, and it should say %q\n%s", name, o.exit, words, o.output)
			}
		}
		if now := machineNames(objectsIn(t, d.command, "kubeconfig").Moved); !slices.Equal(now, before) {
			t.Fatalf("replace-machine %s was refused, and the Machines are %v instead of %v", name, now, before)
		}
	}

	d.plantSnapshot(t)
	refused(gone.Name, "another server could not be made", "2 images", "image --prune")
	if notes := strings.Join(d.status(t).Notes, "\n"); !strings.Contains(notes, "image --prune") {
		t.Errorf("status does not tell of the second snapshot: %s", notes)
	}
	if o := d.run(nil, "image", "--prune", "--yes", "--lab"); o.exit != 0 {
		t.Fatalf("image --prune: exit %d\n%s", o.exit, o.end())
	}
	if n := len(d.talosSnapshots(t)); n != 1 {
		t.Fatalf("after image --prune %d snapshots of the name", n)
	}

	// CAPH may create the server again at once, and its Talos rejoins etcd in seconds: then etcd does not need the other.
	d.lab("fault", "add", "slow-boot", "server="+gone.Name, "delay=2m", "times=1")
	deleted := must(first(d.Server.DeleteWithResult(t.Context(), gone)))(t)
	if err := d.Action.WaitFor(t.Context(), deleted.Action); err != nil {
		t.Fatal(err)
	}
	// Without the other one etcd would lose its quorum. It is asked again for a while before that is a refusal.
	waits := false
	o := d.run(func(e event, p *os.Process) {
		if strings.Contains(e.Message, "waiting for etcd to keep its quorum without "+other.Name) &&
			strings.Contains(e.Message, "etcd would lose its quorum") {
			waits = true
			_ = p.Signal(os.Interrupt)
		}
	}, "replace-machine", other.Name, "--lab")
	if now := machineNames(objectsIn(t, d.command, "kubeconfig").Moved); !waits || o.exit != 130 ||
		!slices.Equal(now, before) {
		t.Fatalf("replace-machine %s: exit %d, Machines %v before, %v after\n%s", other.Name, o.exit, before, now, o.output)
	}

	killed := false
	o = d.run(func(e event, p *os.Process) {
		if !killed && strings.Contains(e.Message, "waiting for the replacement of") {
			killed = true
			_ = p.Kill()
		}
	}, "replace-machine", gone.Name, "--lab")
	if !killed || o.exit != -1 {
		t.Fatalf("not killed while it waits: exit %d\n%s", o.exit, o.end())
	}
	o = d.run(nil, "replace-machine", gone.Name, "--lab")
	if o.exit != 0 {
		t.Fatalf("after the kill: exit %d\n%s", o.exit, o.end())
	}
	t.Logf("replaced in %.1fs after the kill", o.elapsed.Seconds())
	// a minute as a rule; Kubernetes alone leaves the controllers five minutes on the dead node
	if o.elapsed > 4*time.Minute {
		t.Errorf("the replacement took %s: the lost server's Pods were not started elsewhere", o.elapsed)
	}
	nodesReady(t, d.command, 3)
	votingMembers(t, d.command, 3)
	d.closed(t, 3)
	after := machineNames(objectsIn(t, d.command, "kubeconfig").Moved)
	stayed := slices.DeleteFunc(slices.Clone(after), func(m string) bool { return !slices.Contains(before, m) })
	if len(after) != 3 || len(stayed) != 2 {
		t.Errorf("Machines %v before, %v after: one is to be another", before, after)
	}
}

func machineNames(objects []unstructured.Unstructured) []string {
	var names []string
	for i := range objects {
		if objects[i].GetKind() == "Machine" {
			names = append(names, objects[i].GetName())
		}
	}
	slices.Sort(names)
	return names
}

func (p project) talosSnapshots(t *testing.T) []*hcloud.Image {
	t.Helper()
	return must(p.Image.AllWithOpts(t.Context(),
		hcloud.ImageListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "caph-image-name==talos-amd64-v1.13.9"}}))(t)
}

// plantSnapshot creates a second snapshot that CAPH finds, as a user of Packer does.
func (p project) plantSnapshot(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if n := len(p.talosSnapshots(t)); n != 1 {
		t.Fatalf("%d snapshots carry the label before a second is made", n)
	}
	made := must(first(p.Server.CreateImage(ctx, p.clusterServers(t)[0], &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: hcloud.Ptr("by hand"),
		Labels: map[string]string{"caph-image-name": "talos-amd64-v1.13.9", "os": "talos"},
	})))(t)
	if err := p.Action.WaitFor(ctx, made.Action); err != nil {
		t.Fatal(err)
	}
}

var talosControlPlane = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha3",
	Kind: "TalosControlPlane"}

// patch merges a change into one of the cluster's own objects, and tries again for a minute.
func patch(t *testing.T, cluster *kube.Cluster, kind schema.GroupVersionKind, name, change string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace("default")
	o.SetName(name)
	// A webhook may refuse for some seconds: after a server was replaced, the API server on it has not read the Services
	// yet.
	eventually(t, "the change of "+kind.Kind+" "+name, time.Minute, func(ctx context.Context) string {
		err := cluster.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(change)))
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// fiveServers scales a cluster that manages itself as the command instructs, killed in between.
func (d *firstDay) fiveServers(t *testing.T) {
	o := d.run(nil, "bootstrap", "--lab", "CONTROL_PLANE_REPLICAS=5")
	if o.exit != 2 || !strings.Contains(o.output, "scale control-plane 5") {
		t.Fatalf("with five configured: exit %d, and it does not say how to scale\n%s", o.exit, o.end())
	}
	config, err := os.ReadFile(filepath.Join(d.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := must(kube.Connect(config))(t)
	watched := watchEtcd(t, d.command)
	// Killed after it asked for the fourth server: it says what it writes before it writes it, and waits afterwards.
	o = d.run(func(e event, p *os.Process) {
		if strings.Contains(e.Message, "waiting for 4 control plane servers") {
			_ = p.Kill()
		}
	}, "scale", "control-plane", "5", "--lab")
	if o.exit == 0 {
		t.Fatalf("it was not killed\n%s", o.output)
	}
	if o := d.run(nil, "scale", "control-plane", "5", "--lab"); o.exit != 0 || !strings.Contains(o.output, "4 → 5") ||
		strings.Contains(o.output, "3 → 4") {
		t.Fatalf("after the kill: exit %d\n%s", o.exit, o.end())
	}
	watched.oneAtATime(t, 3, 5)
	const drift = "CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5"
	if o := d.run(nil, "all", "--lab"); o.exit != 0 {
		t.Fatalf("when they are there, and three are configured: exit %d\n%s", o.exit, o.end())
	}
	// The API server of a server that has just come may not answer yet, and then the comparison is not known.
	eventually(t, "the plan to name the five servers", time.Minute, func(ctx context.Context) string {
		out, err := d.cmd(ctx, "plan", "--lab").CombinedOutput()
		if err != nil || !strings.Contains(string(out), drift) {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	if o := d.run(nil, "all", "--lab", "CONTROL_PLANE_REPLICAS=5"); o.exit != 0 ||
		strings.Contains(o.output, "and the cluster has") {
		t.Fatalf("when they are there, and five are configured: exit %d\n%s", o.exit, o.end())
	}
	if why := readyNodes(t.Context(), cluster, 5); why != "" {
		t.Error(why)
	}
	nodesReady(t, d.command, 5)
	votingMembers(t, d.command, 5)
	d.closed(t, 5)
}

// threeServers scales it back. A PodDisruptionBudget that allows nothing is named, and nothing is changed.
func (d *firstDay) threeServers(t *testing.T) {
	client := workload(t, d.command)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all-stay", Namespace: "kube-system"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromString("100%")),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}}}
	budgets := client.PolicyV1().PodDisruptionBudgets("kube-system")
	if _, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget's status", time.Minute, func(ctx context.Context) string {
		is, err := budgets.Get(ctx, "all-stay", metav1.GetOptions{})
		if err != nil || is.Status.ExpectedPods == 0 {
			return fmt.Sprintf("%v, of %d Pods", err, is.Status.ExpectedPods)
		}
		return ""
	})
	before := d.clusterServers(t)
	o := d.run(nil, "scale", "control-plane", "3", "--yes", "--lab")
	if o.exit != 1 || !strings.Contains(o.output, "PodDisruptionBudget kube-system/all-stay") {
		t.Fatalf("with a budget that allows nothing: exit %d\n%s", o.exit, o.end())
	}
	if err := budgets.Delete(t.Context(), "all-stay", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if o := d.run(nil, "scale", "control-plane", "3", "--lab"); o.exit != 2 || !strings.Contains(o.output, "--yes") {
		t.Fatalf("without consent: exit %d\n%s", o.exit, o.end())
	}
	if now := d.clusterServers(t); len(now) != len(before) {
		t.Fatalf("%d servers after refusals, not %d", len(now), len(before))
	}
	watched := watchEtcd(t, d.command)
	if o = d.run(nil, "scale", "control-plane", "3", "--yes", "--lab"); o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	watched.oneAtATime(t, 5, 3)
	nodesReady(t, d.command, 3)
	votingMembers(t, d.command, 3)
	if now := d.clusterServers(t); len(now) != 3 {
		t.Errorf("%d servers", len(now))
	}
}

func ptr[T any](v T) *T { return &v }

// readyNodes returns what is missing for so many Ready nodes.
func readyNodes(ctx context.Context, cluster *kube.Cluster, want int) string {
	nodes := &corev1.NodeList{}
	if err := cluster.List(ctx, nodes); err != nil {
		return err.Error()
	}
	ready := 0
	for _, n := range nodes.Items {
		if n.Spec.ProviderID != "" && len(n.Spec.Taints) == 0 &&
			slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
			ready++
		}
	}
	if ready < want {
		return strconv.Itoa(ready) + " nodes are Ready"
	}
	return ""
}

// loadBalancerDeleted deletes the load balancer: the next run creates it again at the same address.
func (d *firstDay) loadBalancerDeleted(t *testing.T) {
	ctx := t.Context()
	config, err := os.ReadFile(filepath.Join(d.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	opts := hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "caph-cluster-k8s==owned"}}
	lost := must(d.LoadBalancer.AllWithOpts(ctx, opts))(t)[0]
	address := lost.PublicNet.IPv4.IP.String()
	d.lab("fault", "add", "vanish-load-balancer", "loadBalancer="+lost.Name)
	is := "the load balancer at " + address + " was deleted; its address is kept by Primary IP"
	if answer, reason := d.status(t).verdict("endpoint"); answer != "gone" || !strings.Contains(reason, is) {
		t.Errorf("status says of endpoint that it is %s: %s", answer, reason)
	}
	// A server's own address opens the cluster meanwhile.
	server := d.clusterServers(t)[0].PublicNet.IPv4.IP.String()
	there := must(kube.Connect(bytes.ReplaceAll(config, []byte(address), []byte(server))))(t)
	// A server that has just come has its Node first, its API server a little later.
	eventually(t, "the cluster through server "+server, time.Minute, func(ctx context.Context) string {
		return readyNodes(ctx, there, 5)
	})

	o := d.run(nil, "all", "--lab")
	if o.exit != 0 || !slices.Contains(o.steps("step-done"), "endpoint") ||
		slices.ContainsFunc(o.steps("step-done"), func(s string) bool { return s == "apply" || s == "pivot" }) {
		t.Errorf("all: exit %d, ran %v\n%s", o.exit, o.steps("step-done"), o.output)
	}
	t.Logf("again at the same address in %.1fs", o.elapsed.Seconds())
	if after, err := os.ReadFile(filepath.Join(d.state, "kubeconfig")); err != nil || !bytes.Equal(after, config) {
		t.Errorf("the kubeconfig was changed, %v", err)
	}
	// CAPH looks again every 3 minutes (--sync-period), or when the HetznerCluster changes; it adopts it, and every server
	// is behind it.
	self := must(kube.Connect(config))(t)
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetGroupVersionKind(capi.HetznerClusterKind)
	if err := self.Get(ctx, client.ObjectKey{Namespace: "default", Name: "k8s"}, infrastructure); err != nil {
		t.Fatal(err)
	}
	if err := self.Patch(ctx, infrastructure, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"test":"look again"}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new load balancer", time.Minute, func(ctx context.Context) string {
		now, err := d.LoadBalancer.AllWithOpts(ctx, opts)
		switch {
		case err != nil:
			return err.Error()
		case len(now) != 1 || now[0].ID == lost.ID || now[0].PublicNet.IPv4.IP.String() != address:
			return fmt.Sprintf("CAPH owns %d, the address was %s", len(now), address)
		case len(now[0].Targets) != 5:
			return fmt.Sprintf("%d targets", len(now[0].Targets))
		}
		return readyNodes(ctx, self, 5)
	})
	if ips := must(d.PrimaryIP.AllWithOpts(ctx, hcloud.PrimaryIPListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: "slipway-cluster==k8s"}}))(t); len(ips) != 1 {
		t.Errorf("the cluster has %d Primary IPs", len(ips))
	}
}
