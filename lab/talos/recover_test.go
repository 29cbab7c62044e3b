package talos

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

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

	// A server that is reset gracefully leaves, loses its data and, after its boot, joins as a new member.
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
