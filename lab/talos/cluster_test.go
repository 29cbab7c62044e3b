package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// patience bounds waits for several real programs on a busy machine.
const patience = 3 * time.Minute

// members returns the etcd members, "name=id", with learners marked, or an error while the member cannot answer.
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

// serveEndpoint acts as the cluster's load balancer: it forwards connections to a kube-apiserver that is ready.
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
		tunnel.Serve(ctx, l, func(ctx context.Context) (net.Conn, error) {
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
				if err == nil && !strings.HasPrefix(v.GitVersion, "v1.35.") {
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
	t.Run("manifests", func(t *testing.T) { testManifests(t, f, kube, x) })
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
	// Its kubelet uses the others' kube-apiservers: the Node can be drained.
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
