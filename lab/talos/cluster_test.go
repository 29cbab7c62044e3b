package talos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// patience is for what several real programs on a busy machine have to do first.
const patience = 3 * time.Minute

// members asks for the etcd members, "name=id", learners marked; what is asked may not be able to answer yet.
func members(ctx context.Context, c *client.Client) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range r.Messages[0].Members {
		learner := ""
		if m.IsLearner {
			learner = " (learner)"
		}
		all = append(all, fmt.Sprintf("%s=%x%s", m.Hostname, m.Id, learner))
	}
	slices.Sort(all)
	return all, nil
}

func names(members []string) string {
	var all []string
	for _, m := range members {
		name, _, _ := strings.Cut(m, "=")
		if strings.Contains(m, "learner") {
			name += " (learner)"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

func awaitMembers(t testing.TB, c *client.Client, want string) (found []string) {
	t.Helper()
	await(t, patience, "etcd members "+want, func() (err error) {
		found, err = members(t.Context(), c)
		if err == nil && names(found) != want {
			err = fmt.Errorf("%v", found)
		}
		return err
	})
	return found
}

func awaitAPIServer(t testing.TB, x *Talos, id int64) *rest.Config {
	t.Helper()
	await(t, patience, fmt.Sprintf("the kube-apiserver of server %d", id), func() error {
		if st := statusOf(t, x, id); st.APIServer != "ready" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	kubeconfig, ok, err := x.AdminKubeconfig(id)
	if err != nil || !ok {
		t.Fatalf("administrator's kubeconfig: %v, %v", ok, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func clientOf(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serveEndpoint plays the cluster's load balancer: it passes connections on to whichever kube-apiserver is ready.
func (f *fixture) serveEndpoint(t testing.TB, x *atomic.Pointer[Talos]) {
	t.Helper()
	l, err := net.Listen("tcp4", f.endpoint+":6443")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(ctx, l, func(ctx context.Context) (net.Conn, error) {
			for _, st := range x.Load().Status() {
				if st.Endpoint == "" {
					continue
				}
				if conn, err := dial(ctx, strings.TrimPrefix(st.Endpoint, "https://")); err == nil {
					return conn, nil
				}
			}
			return nil, errors.New("no kube-apiserver is ready")
		})
	}()
	t.Cleanup(func() {
		l.Close()
		cancel()
		<-done
	})
}

func bootstrap(t testing.TB, c *client.Client) {
	t.Helper()
	await(t, 20*time.Second, "Bootstrap", func() error {
		err := c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
		if code := status.Code(err); code != codes.FailedPrecondition && code != codes.Unavailable {
			return nil
		}
		return err
	})
}

// TestCluster takes a cluster of three control plane servers through its life: one after the other, because each
// part costs half a minute to bring about.
func TestCluster(t *testing.T) {
	bin := planetest.Bin(t)
	f := newFixture(t)
	dir := t.TempDir()
	x := newTalos(t, dir, bin)
	var present atomic.Pointer[Talos]
	present.Store(x)
	f.serveEndpoint(t, &present)
	servers := f.controlPlanes(3)
	worker := f.hardware(7, f.userData(machine.TypeWorker))
	worker.Name = clusterName + "-worker"
	start(t, x, append(servers, worker)...)
	one := f.admin(t, f.private(1))
	booted(t, one)
	bootstrap(t, one)
	all := fmt.Sprintf("%s %s %s", servers[0].Name, servers[1].Name, servers[2].Name)
	founded := awaitMembers(t, one, all)

	t.Run("bootstrapped once", func(t *testing.T) {
		for i := range servers {
			err := f.admin(t, f.public(i+1)).Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
			if status.Code(err) != codes.AlreadyExists {
				t.Errorf("Bootstrap of server %d, which has data: %v", i+1, err)
			}
		}
		found := listAll(t, one, client.WithNodes(t.Context(), f.private(1)), "/var/lib/etcd/member")
		if len(found) == 0 || found[0].Metadata.Error != "" || !found[0].IsDir {
			t.Errorf("the member's folder: %v", found)
		}
	})
	t.Run("every server has its kube-apiserver", func(t *testing.T) {
		for i := range servers {
			config := awaitAPIServer(t, x, int64(i+1))
			if want := "https://" + f.private(i+1) + ":6443"; config.Host != want {
				t.Errorf("server %d's kube-apiserver is at %s, want %s", i+1, config.Host, want)
			}
			config.Host = "https://" + f.public(i+1) + ":6443" // with a certificate that is good for it
			await(t, patience, "its public address to be served, too", func() error {
				v, err := clientOf(t, config).Discovery().ServerVersion()
				if err == nil && !strings.HasPrefix(v.GitVersion, "v1.32.") {
					err = fmt.Errorf("it is %s", v.GitVersion)
				}
				return err
			})
		}
	})
	config := awaitAPIServer(t, x, 1)
	kube := clientOf(t, config)
	t.Run("etcd is healthy", func(t *testing.T) {
		for i := range servers {
			c := f.admin(t, f.private(i+1))
			await(t, patience, "a healthy etcd", func() error {
				info, err := c.ServiceInfo(t.Context(), "etcd")
				if err != nil {
					return err
				}
				s := info[0].Service
				last := s.Events.Events[len(s.Events.Events)-1]
				if last.State != "Running" || !s.Health.Healthy || s.Health.Unknown {
					return fmt.Errorf("%v", s)
				}
				return nil
			})
			st, err := c.EtcdStatus(t.Context())
			if err != nil || st.Messages[0].MemberStatus.IsLearner || st.Messages[0].MemberStatus.StorageVersion != "3.5.0" {
				t.Errorf("etcd status of server %d: %v, %v", i+1, st, err)
			}
		}
	})
	t.Run("nodes", func(t *testing.T) { testNodes(t, f, kube, append(servers, worker)) })
	t.Run("manifests", func(t *testing.T) { testManifests(t, f, kube) })
	t.Run("talos.dev service accounts", func(t *testing.T) { testServiceAccounts(t, f, config) })
	t.Run("secrets are encrypted in etcd", func(t *testing.T) {
		const planted = "planted-secret-value"
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "planted"},
			StringData: map[string]string{"key": planted}}
		if _, err := kube.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b := snapshotOf(t, one)
		if !bytes.Contains(b, []byte("k8s:enc:secretbox:v1:key2:")) || bytes.Contains(b, []byte(planted)) {
			t.Error("the Secret lies in etcd as it is")
		}
	})
	t.Run("restart of a kube-apiserver", func(t *testing.T) {
		if err := x.Plane(1).RestartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, patience, "its answer", func() error {
			_, err := kube.CoreV1().Secrets("default").Get(t.Context(), "planted", metav1.GetOptions{})
			return err
		})
	})
	whole := t // what is started again lives on after its part of the test
	t.Run("restart of everything", func(t *testing.T) {
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		x = newTalos(whole, dir, bin)
		present.Store(x)
		start(t, x, servers...)
		if got := awaitMembers(t, one, all); !slices.Equal(got, founded) {
			t.Errorf("members %v, want those from before %v", got, founded)
		}
		config = awaitAPIServer(t, x, 1)
		kube = clientOf(t, config)
		if _, err := kube.CoreV1().Secrets("default").Get(t.Context(), "planted", metav1.GetOptions{}); err != nil {
			t.Errorf("what was there before: %v", err)
		}
	})
	t.Run("leave", func(t *testing.T) { testLeave(t, f, x) })
	t.Run("a deleted server stays a member", func(t *testing.T) { testDeleted(t, f, x, servers[1].Name) })
}

func testNodes(t *testing.T, f *fixture, kube kubernetes.Interface, want []cloud.Server) {
	var nodes []corev1.Node
	await(t, patience, "Nodes", func() error {
		list, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != len(want) {
			err = fmt.Errorf("%d Nodes", len(list.Items))
		}
		if err == nil {
			nodes = list.Items
		}
		return err
	})
	for i, n := range nodes {
		if n.Name != want[i].Name || n.Status.NodeInfo.KubeletVersion != "v"+kubernetesVersion ||
			n.Status.NodeInfo.OSImage != "Talos (v1.12.2)" {
			t.Errorf("node %s: %+v", n.Name, n.Status.NodeInfo)
		}
		if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok != strings.Contains(n.Name, "-cp-") {
			t.Errorf("node %s: labels %v", n.Name, n.Labels)
		}
		if _, ok := n.Labels["node.kubernetes.io/exclude-from-external-load-balancers"]; ok {
			t.Errorf("node %s is excluded from load balancers", n.Name)
		}
		uninitialized := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "node.cloudprovider.kubernetes.io/uninitialized"
		})
		if !uninitialized || n.Spec.ProviderID != "" {
			t.Errorf("node %s: taints %v, provider ID %q: want it to wait for a cloud controller", n.Name, n.Spec.Taints,
				n.Spec.ProviderID)
		}
		if n.Annotations["alpha.kubernetes.io/provided-node-ip"] != want[i].PrivateIP().String() {
			t.Errorf("node %s: annotations %v", n.Name, n.Annotations)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				t.Errorf("node %s is Ready without a CNI", n.Name)
			}
		}
	}
	await(t, patience, "requests for serving certificates", func() error {
		requests, err := kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		from := map[string]bool{}
		for _, r := range requests.Items {
			from[r.Spec.Username] = true
		}
		if len(from) != len(want) {
			return fmt.Errorf("from %v", from)
		}
		return nil
	})
}

func testManifests(t *testing.T, f *fixture, kube kubernetes.Interface) {
	await(t, patience, "DNS", func() error {
		dns, err := kube.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
		if err == nil && dns.Spec.ClusterIP != f.address("96.10") {
			t.Errorf("DNS is at %s", dns.Spec.ClusterIP)
		}
		if err == nil {
			_, err = kube.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
		}
		return err
	})
	sets, err := kube.AppsV1().DaemonSets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 0 {
		t.Errorf("%d DaemonSets, %v: CNI and kube-proxy were declined", len(sets.Items), err)
	}
	// The PodSecurity defaults of Talos: baseline outside of kube-system.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "privileged"}, Spec: corev1.PodSpec{
		HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a Pod on the host's network in default: %v", err)
	}
}

func testServiceAccounts(t *testing.T, f *fixture, config *rest.Config) {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	account := func(namespace, name, role string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "talos.dev/v1alpha1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"roles": []any{role}}}}
		await(t, patience, "ServiceAccount "+name, func() error {
			_, err := dynamicClient.Resource(talosServiceAccounts).Namespace(namespace).Create(t.Context(), o,
				metav1.CreateOptions{})
			return err
		})
	}
	account("kube-system", "ccm-talos-secrets", "os:reader")
	account("kube-system", "too-much", "os:admin")
	account("default", "elsewhere", "os:reader")

	kube := clientOf(t, config)
	var talosconfig []byte
	await(t, patience, "its Secret", func() error {
		secret, err := kube.CoreV1().Secrets("kube-system").Get(t.Context(), "ccm-talos-secrets", metav1.GetOptions{})
		if err == nil {
			talosconfig = secret.Data["config"]
		}
		return err
	})
	path := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(path, talosconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), client.WithConfigFromFile(path))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("a reader's access: %v", err)
	}
	if err := c.Reboot(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a reader reboots: %v", err)
	}
	for _, refused := range [][2]string{{"kube-system", "too-much"}, {"default", "elsewhere"}} {
		await(t, patience, "the refusal of "+refused[1], func() error {
			o, err := dynamicClient.Resource(talosServiceAccounts).Namespace(refused[0]).Get(t.Context(), refused[1],
				metav1.GetOptions{})
			if err != nil {
				return err
			}
			reason, _, _ := unstructured.NestedString(o.Object, "status", "failureReason")
			if !strings.Contains(reason, "not allowed") {
				return fmt.Errorf("failureReason %q", reason)
			}
			return nil
		})
	}
}

func snapshotOf(t *testing.T, c *client.Client) []byte {
	t.Helper()
	r, err := c.EtcdSnapshot(t.Context(), &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testLeave takes server 3 out in order, as Cluster API's control plane provider does when it scales down.
func testLeave(t *testing.T, f *fixture, x *Talos) {
	one, three := f.admin(t, f.private(1)), f.admin(t, f.private(3))
	awaitAPIServer(t, x, 3)
	if _, err := three.EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{}); err != nil {
		t.Fatal(err)
	}
	if st, err := three.EtcdStatus(t.Context()); err != nil ||
		st.Messages[0].MemberStatus.Leader == st.Messages[0].MemberStatus.MemberId {
		t.Errorf("the leadership after it was forfeited: %v, %v", st, err)
	}
	if err := three.EtcdLeaveCluster(t.Context(), &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, one, clusterName+"-cp-1 "+clusterName+"-cp-2")
	if x.server(3).running().etcd.hasData() {
		t.Error("the data of a member that has left are still there")
	}
	info, err := three.ServiceInfo(t.Context(), "etcd")
	if err != nil || info[0].Service.State != "Finished" {
		t.Errorf("etcd after it has left: %v, %v", info, err)
	}
	await(t, patience, "the end of its control plane", func() error {
		if st := statusOf(t, x, 3); st.Endpoint != "" || st.APIServer == "ready" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	// Its kubelet goes on by way of the others' kube-apiservers: the Node can be drained.
	kube := clientOf(t, awaitAPIServer(t, x, 1))
	leases := kube.CoordinationV1().Leases("kube-node-lease")
	before, err := leases.Get(t.Context(), clusterName+"-cp-3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, patience, "a renewal of its Node's lease", func() error {
		now, err := leases.Get(t.Context(), clusterName+"-cp-3", metav1.GetOptions{})
		if err == nil && !now.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			err = fmt.Errorf("last renewed %v", now.Spec.RenewTime)
		}
		return err
	})
}

// testDeleted deletes server 3, which has left, and server 2, which has not.
func testDeleted(t *testing.T, f *fixture, x *Talos, second string) {
	ctx := t.Context()
	if err := x.Delete(ctx, 3); err != nil {
		t.Fatal(err)
	}
	// A new third server joins, so that a majority outlives the second.
	four := f.hardware(4, f.userData(machine.TypeControlPlane))
	start(t, x, four)
	one := f.admin(t, f.private(1))
	found := awaitMembers(t, one, clusterName+"-cp-1 "+second+" "+four.Name)
	if err := x.Delete(ctx, 2); err != nil {
		t.Fatal(err)
	}
	// of the first, the fourth and the worker
	if left, err := os.ReadDir(filepath.Join(x.config.Dir)); err != nil || len(left) != 3 {
		t.Errorf("disks left: %v, %v", left, err)
	}
	awaitMembers(t, one, clusterName+"-cp-1 "+second+" "+four.Name)
	var id uint64
	for _, m := range found {
		name, hex, _ := strings.Cut(m, "=")
		if name == second {
			if _, err := fmt.Sscanf(hex, "%x", &id); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, patience, "the removal of the deleted server's member", func() error {
		err := one.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		if err == nil {
			err = errors.New("asked, now to be confirmed")
		}
		return err
	})
	awaitMembers(t, one, clusterName+"-cp-1 "+four.Name)
}

// TestRecover loses a cluster's only server and brings the cluster back on another, from a snapshot.
func TestRecover(t *testing.T) {
	bin := planetest.Bin(t)
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), bin)
	var present atomic.Pointer[Talos]
	present.Store(x)
	f.serveEndpoint(t, &present)
	servers := f.controlPlanes(3)
	start(t, x, servers[0])
	one := f.admin(t, f.private(1))
	booted(t, one)
	bootstrap(t, one)
	ctx := t.Context()
	kube := clientOf(t, awaitAPIServer(t, x, 1))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, StringData: map[string]string{"key": "value"}}
	if _, err := kube.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	system, err := kube.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := snapshotOf(t, one)
	database, sum := snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
	if want := sha256.Sum256(database); len(database)%512 != 0 || !bytes.Equal(sum, want[:]) {
		t.Errorf("a snapshot of %d bytes does not end with the hash of its database", len(snapshot))
	}
	if err := x.Delete(ctx, 1); err != nil {
		t.Fatal(err)
	}

	start(t, x, servers[1])
	two := f.admin(t, f.private(2))
	booted(t, two)
	recovery := &machineapi.BootstrapRequest{RecoverEtcd: true}
	await(t, 20*time.Second, "the refusal of a recovery without a snapshot", func() error {
		err := two.Bootstrap(ctx, recovery)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "EtcdRecover") {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	// A damaged snapshot is found out only when it is half restored, and leaves a
	// server that has to be reset, as a real one.
	damaged := bytes.Clone(snapshot)
	damaged[len(damaged)-1] ^= 1
	if _, err := two.EtcdRecover(ctx, bytes.NewReader(damaged)); err != nil {
		t.Fatal(err)
	}
	if err := two.Bootstrap(ctx, recovery); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "a failed restoration", func() error {
		st := statusOf(t, x, 2)
		if !strings.HasPrefix(st.Etcd, "Failed") || !strings.Contains(st.Etcd, "sha256") ||
			!strings.Contains(st.Etcd, "EPHEMERAL") {
			return errors.New(st.Etcd)
		}
		return nil
	})
	if err := two.Bootstrap(ctx, recovery); status.Code(err) != codes.AlreadyExists {
		t.Errorf("Bootstrap over half of a restoration: %v", err)
	}
	reset(t, two, false)
	await(t, patience, "a recovery", func() error {
		if _, err := two.EtcdRecover(ctx, bytes.NewReader(snapshot)); err != nil {
			return err
		}
		return two.Bootstrap(ctx, recovery)
	})
	awaitMembers(t, two, servers[1].Name)
	kube = clientOf(t, awaitAPIServer(t, x, 2))
	kept, err := kube.CoreV1().Secrets("default").Get(ctx, "kept", metav1.GetOptions{})
	if err != nil || string(kept.Data["key"]) != "value" {
		t.Errorf("what was there before: %v, %v", kept, err)
	}
	again, err := kube.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil || again.UID != system.UID {
		t.Errorf("kube-system is %v, %v: want the same cluster", again, err)
	}
	if _, err := os.Stat(x.server(2).running().etcd.snapshotFile()); !os.IsNotExist(err) {
		t.Errorf("the uploaded snapshot is still there: %v", err)
	}
	start(t, x, servers[2])
	both := servers[1].Name + " " + servers[2].Name
	before := awaitMembers(t, two, both)

	// A server that is reset in order leaves, loses its data and, when it has booted again, joins as somebody new.
	await(t, patience, "the third server's etcd", func() error {
		if url, _ := x.server(3).running().etcd.url.get(); url == "" {
			return errors.New(statusOf(t, x, 3).Etcd)
		}
		return nil
	})
	reset(t, f.admin(t, f.private(3)), true)
	await(t, patience, "a new member", func() error {
		now, err := members(ctx, two)
		if err == nil && (names(now) != both || slices.Equal(now, before)) {
			err = fmt.Errorf("%v", now)
		}
		return err
	})
}

// reset wipes a server's EPHEMERAL partition and reboots it.
func reset(t *testing.T, c *client.Client, graceful bool) {
	t.Helper()
	if err := c.ResetGeneric(t.Context(), &machineapi.ResetRequest{Graceful: graceful, Reboot: true,
		SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}}); err != nil {
		t.Fatal(err)
	}
}
