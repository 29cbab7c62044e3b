package cli

import (
	"errors"
	"slices"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// scopeOf is the cluster as a Job of a fleet has its state.
func scopeOf(cluster string) keys.Scope {
	return keys.Scope{Environment: statedir.EnvironmentHetzner, Cluster: cluster}
}

// A Job of a cluster has the key of that cluster alone, and never the operator's.
func TestFleetKeysOfClusters(t *testing.T) {
	f := newFleetTest(t, fleetOfTwo)
	f.says(ExitDone, "2 done", "apply")
	for cluster, job := range f.jobs() {
		pod := job.Spec.Template.Spec
		name := pod.Containers[0].Env[1].ValueFrom.SecretKeyRef.Name
		if name != fleet.KeyName(cluster) || pod.ServiceAccountName != fleet.AccountName(cluster) {
			t.Errorf("the Job of %s has the key of Secret %s, and is %s", cluster, name, pod.ServiceAccountName)
		}
		key := []byte(f.secret(fleetNamespace, name, fleet.IdentitySecretKey))
		if _, err := remotestate.ReadKeys(key, scopeOf(cluster)); err != nil {
			t.Errorf("the key of %s: %v", cluster, err)
		}
		if _, err := remotestate.ReadKeys(key, scopeOf("another")); !errors.Is(err, keys.ErrOtherCluster) {
			t.Errorf("the key of %s for another cluster: %v", cluster, err)
		}
		if f.Get("v1", "ServiceAccount", fleetNamespace, fleet.AccountName(cluster)) == nil ||
			f.Get("v1", "Namespace", "", fleet.StateNamespace(fleetNamespace, cluster)) == nil ||
			f.Get("v1", "Namespace", "", cluster) == nil {
			t.Errorf("what the Job of %s works with is not there", cluster)
		}
	}
}

// The states of a fleet of an earlier release, which are in the fleet's namespace, are moved, and the key of the
// cluster opens them; plan sees them before.
func TestFleetStatesOfAnEarlierRelease(t *testing.T) {
	t.Run("X25519", func(t *testing.T) { testFleetStates(t, newFleetTest(t, fleetOfTwo)) })
	t.Run("post-quantum", func(t *testing.T) {
		key, err := age.GenerateHybridIdentity()
		if err != nil {
			t.Fatal(err)
		}
		f := newFleetTest(t, fleetOfTwo)
		f.useKey(key.String())
		testFleetStates(t, f)
	})
}

func testFleetStates(t *testing.T, f *fleetTest) {
	config, err := clientcmd.RESTConfigFromKubeConfig(f.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	store := func(namespace string) objectstore.Store {
		return objectstore.Secrets(client.CoreV1().Secrets(namespace), namespace)
	}
	place := func(namespace, key string) remotestate.Place {
		t.Helper()
		read, err := remotestate.ReadKeys([]byte(key), scopeOf("alpha"))
		if err != nil {
			t.Fatal(err)
		}
		return remotestate.Place{Store: store(namespace), Cluster: "alpha", Environment: statedir.EnvironmentHetzner,
			Keys: read,
			Dir:  t.TempDir(), Who: remotestate.Here("test")}
	}
	old := place(fleetNamespace, f.key)
	if err := statedir.Dir(old.Dir).Files().Write("kubeconfig", []byte("of alpha")); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Push(t.Context(), time.Minute, false, t.Logf); err != nil {
		t.Fatal(err)
	}
	f.says(ExitDone, "the state of cluster alpha is moved to namespace fleets-alpha", "apply")
	// The operator's key opens it, too.
	own := place("fleets-alpha", f.key)
	if _, _, err := own.Pull(t.Context()); err != nil {
		t.Errorf("the operator's key does not open the state: %v", err)
	}
	moved := place("fleets-alpha", f.secret(fleetNamespace, fleet.KeyName("alpha"), fleet.IdentitySecretKey))
	if _, _, err := moved.Pull(t.Context()); err != nil {
		t.Errorf("the key of the cluster does not open the state: %v", err)
	}
	if data, err := statedir.Dir(moved.Dir).Files().Read("kubeconfig"); err != nil || string(data) != "of alpha" {
		t.Errorf("the state has %q, %v", data, err)
	}
	// Whether the store refuses a conflicting write is tried with an object of this name.
	left, err := old.Store.List(t.Context(), "")
	left = slices.DeleteFunc(left, func(name string) bool { return name == "conditional-writes" })
	if err != nil || len(left) > 0 {
		t.Errorf("in the old place there is %v, %v", left, err)
	}
}
