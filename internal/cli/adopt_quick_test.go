//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	infrastructureVersion = "infrastructure.cluster.x-k8s.io/v1beta1"
	controlPlaneVersion   = "controlplane.cluster.x-k8s.io/v1alpha3"
)

// createdWithoutSlipway is a cluster in the fake environment that Slipway does not know: its name is not reserved, its
// server template and a Helm release have other names, one more patch is in its TalosControlPlane, it has no
// MachineHealthCheck, and the Secret of the cloud controller manager has the network's name.
func createdWithoutSlipway(t *testing.T) *quick {
	t.Helper()
	q := newQuick(t, quickCharts(t))
	if code, said := q.command(t, "bootstrap", "HCLOUD_CCM_RELEASE=hccm"); code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	tcp := q.Management.Get(controlPlaneVersion, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	name, _, _ := unstructured.NestedString(tcp.Object, "spec", "infrastructureTemplate", "name")
	template := q.Management.Get(infrastructureVersion, "HCloudMachineTemplate", config.DefaultNamespace, name)
	q.Management.Remove(infrastructureVersion, "HCloudMachineTemplate", config.DefaultNamespace, name)
	template.SetName("k8s-servers")
	q.Management.Put(template)
	patches, _, _ := unstructured.NestedSlice(tcp.Object, "spec", "controlPlaneConfig", "controlplane", "strategicPatches")
	patches = append(patches, "machine:\n  sysctls:\n    vm.overcommit_memory: \"1\"\n    text: ${NOT_A_VARIABLE}\n")
	q.Management.Change(controlPlaneVersion, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		map[string]any{"spec": map[string]any{"infrastructureTemplate": map[string]any{"name": "k8s-servers"},
			"controlPlaneConfig": map[string]any{"controlplane": map[string]any{"strategicPatches": patches}}}})
	q.Management.Remove("cluster.x-k8s.io/v1beta1", "MachineHealthCheck", config.DefaultNamespace, "k8s-control-plane")
	q.Workload.Change("v1", "Secret", "kube-system", config.CCMSecretName,
		map[string]any{"data": map[string]any{"network": "azhz"}}) // k8s
	record, err := ownership.Read(q.state().Files())
	if err != nil {
		t.Fatal(err)
	}
	q.Hetzner.Drop("placement_groups", record.Reservation)
	q.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	q.folder = "adopted"
	return q
}

// contents is what an adoption leaves as it was: what of the objects a controller acts on, and Hetzner's resources but
// the reservation.
func (q *quick) contents() map[string]string {
	all := map[string]string{}
	for prefix, objects := range map[string]map[string]*unstructured.Unstructured{"management ": q.Management.All(),
		"workload ": q.Workload.All()} {
		for path, o := range objects {
			content := map[string]any{"uid": o.GetUID(), "spec": o.Object["spec"], "data": o.Object["data"]}
			data, _ := json.Marshal(content)
			all[prefix+path] = string(data)
		}
	}
	return all
}

func wantUnchanged(t *testing.T, q *quick, before map[string]string) {
	t.Helper()
	after := q.contents()
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if before[path] != after[path] {
			t.Errorf("%s was\n%s\nand is\n%s", path, before[path], after[path])
		}
	}
	for path := range after {
		if before[path] == "" {
			t.Errorf("%s was created", path)
		}
	}
}

// TestAdopt describes a cluster that was created without Slipway, and records it: killed at each call that changes
// something, nothing of the cluster is changed, and afterwards nothing is to be done.
func TestAdopt(t *testing.T) {
	q := createdWithoutSlipway(t)
	before := q.contents()
	files := folderContents(t, q.dir)
	code, said := q.command(t, "adopt", "--dry-run")
	if code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	wantSaid(t, "adopt --dry-run", said, "described in manifests/cluster.yaml", "strategicPatches [11 items] → [10 items]",
		"creates MachineHealthCheck", "described in bootstrap.yaml")
	if strings.Contains(said, "slipway-adopt-") {
		t.Errorf("adopt --dry-run names files of a temporary folder:\n%s", said)
	}
	if is := folderContents(t, q.dir); is != files {
		t.Errorf("adopt --dry-run has left\n%s", is)
	}
	if code, said = q.command(t, "adopt", "--yes", "BACKUP_PASSPHRASE_FILE=missing"); code != ExitUsage {
		t.Errorf("with a key for backups that cannot be read: exit %d: %s", code, said)
	}
	wantUnchanged(t, q, before)
	if is := folderContents(t, q.dir); is != files {
		t.Errorf("with a key for backups that cannot be read it has left\n%s", is)
	}
	if code, said = q.command(t, "adopt", "--yes"); code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	wantUnchanged(t, q, before)
	text, err := os.ReadFile(filepath.Join(q.dir, "bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wantSaid(t, "bootstrap.yaml", string(text), "hcloudCcmRelease: hccm", "controlPlaneReplicas: 3", "managementKubeconfig: ",
		fmt.Sprintf("kubernetesVersion: %s\n", config.Defaults().KubernetesVersion))
	manifest, err := os.ReadFile(filepath.Join(q.dir, "manifests", "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wantSaid(t, "cluster.yaml", string(manifest), "vm.overcommit_memory", "$${NOT_A_VARIABLE}", "version: ${KUBERNETES_VERSION",
		"replicas: ${CONTROL_PLANE_REPLICAS")
	if code, said = q.command(t, "plan", "bootstrap", "--detailed-exitcode"); code != ExitDone {
		t.Errorf("plan: exit %d: %s", code, said)
	}
	t.Run("from another state folder", func(t *testing.T) {
		q.folder = "second"
		code, said := q.command(t, "adopt", "--yes")
		if code != ExitUsage {
			t.Errorf("exit %d", code)
		}
		wantSaid(t, "adopt", said, "another state folder's", "has reserved its name")
	})
}

// TestAdoptIsCutOff ends an adoption at each call that changes something. The next one completes it, and nothing of the
// cluster is changed.
func TestAdoptIsCutOff(t *testing.T) {
	q := createdWithoutSlipway(t)
	before := q.contents()
	again := func(folder string) {
		record, err := ownership.Read(q.state().Files())
		if err != nil {
			t.Fatal(err)
		}
		if record != nil {
			q.Hetzner.Drop("placement_groups", record.Reservation)
		}
		for _, name := range []string{"bootstrap.yaml", "manifests"} {
			if err := os.RemoveAll(filepath.Join(q.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		q.folder = folder
	}
	if code, said := q.command(t, "adopt", "--yes"); code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	keys := slices.DeleteFunc(q.keys(t), func(key string) bool { return strings.HasPrefix(key, string(effect.Journal)) })
	if len(keys) < 5 {
		t.Fatalf("it has made no more calls than %v", keys)
	}
	for i, key := range keys {
		again(fmt.Sprint("adopted-", i))
		code, said := q.commandDies(t, death{places: string(effect.PointApplied) + " " + key}, "adopt", "--yes")
		if code != killed {
			t.Errorf("at %s: exit %d: %s", key, code, said)
			continue
		}
		if code, said = q.command(t, "adopt", "--yes"); code != ExitDone {
			t.Errorf("after %s: exit %d: %s", key, code, said)
		}
		wantUnchanged(t, q, before)
	}
}

// TestAdoptRefuses refuses what an adoption could not leave as it is, or not describe, and writes nothing.
func TestAdoptRefuses(t *testing.T) {
	q := createdWithoutSlipway(t)
	for _, c := range []struct {
		name string
		make func()
		args []string
		want string
	}{
		{"another cluster", func() {}, []string{"CLUSTER_NAME=shop"}, "it has CLUSTER_NAME=k8s NAMESPACE=default"},
		{"other values", func() {}, []string{"LOAD_BALANCER_TYPE=lb21", "SERVER_TYPE=cx43"},
			"is not as the files describe it"},
		{"a manifest of the operator's own", func() {
			text, err := manifests.Files.ReadFile(manifests.Cluster)
			if err == nil {
				err = os.Mkdir(filepath.Join(q.dir, "manifests"), 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(q.dir, "manifests", manifests.Cluster), append(text, "# mine\n"...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, nil, "replaces all 3 servers of TalosControlPlane k8s-control-plane"},
		{"a second release", func() {
			for _, s := range q.Workload.All() {
				if s.GetKind() == "Secret" && strings.HasPrefix(s.GetName(), "sh.helm.release.v1.hccm") {
					q.Workload.Remove("v1", "Secret", s.GetNamespace(), s.GetName())
				}
			}
		}, nil, "0 Helm releases of the chart hcloud-cloud-controller-manager"},
		{"no cluster", func() {
			q.Management.Remove("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "k8s")
		}, nil, "holds no Cluster object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.make()
			files := folderContents(t, q.dir)
			code, said := q.command(t, append([]string{"adopt", "--yes"}, c.args...)...)
			if code != ExitUsage {
				t.Errorf("exit %d", code)
			}
			wantSaid(t, "adopt", said, c.want)
			if is := folderContents(t, q.dir); is != files {
				t.Errorf("it has left\n%s", is)
			}
		})
	}
}
