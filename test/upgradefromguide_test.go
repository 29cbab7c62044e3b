package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// supportedSet is the version set with Kubernetes 1.35, Cluster API 1.13 and CAPH 1.1.
const supportedSet, supportedKubernetes = "2026-11", "v1.35.4"

// guideMoments are where the upgrade from the guide's set to 2026-11 is killed: a step of each stage, in their order,
// and a part of what it says there; "" is its beginning.
func guideMoments(pivoted bool) (moments []event) {
	at := func(step string, says ...string) {
		for _, s := range says {
			moments = append(moments, event{Step: step, Message: s})
		}
	}
	// One of the second is said while the server of before leaves.
	rolls := []string{"TalosControlPlane default/k8s-control-plane: |waiting for the control plane's servers",
		" of 1 servers|is being deleted|could not look"}
	at("examine", "")
	at("providers", "upgrading", "waiting for the providers to serve")
	at("image", "Step 7")
	at("talos", append([]string{"applying HCloudMachineTemplate"}, rolls...)...)
	at("kubernetes-1-33-13", rolls...)
	if at("cilium", "upgrading release"); pivoted { // with a worker there is a node for the canary
		at("cilium", "takes the new agent first", "probing from")
	}
	at("kubernetes-1-34-9", rolls...)
	at("hcloud-ccm", "upgrading release")
	at("kubernetes-1-35-4", rolls...)
	if pivoted {
		at("workers", "MachineDeployment default/k8s-general: ")
		at("wait-workers", "waiting")
	}
	at("talos-ccm", "")
	at("wait-releases", "")
	return moments
}

// TestUpgradeFromGuide brings a cluster of one server and one worker, which manages itself, from the guide's version
// set to 2026-11: it is rehearsed from a backup, and then killed in every stage. It is a part of make crash-upgrade.
func TestUpgradeFromGuide(t *testing.T) {
	u := ofGuide(t, "all", "WORKERS=1")
	part := func(name string, f func(*upgrading)) {
		t.Run(name, func(t *testing.T) {
			inner := *u.command
			inner.t = t
			f(&upgrading{t: t, command: &inner, set: u.set})
		})
	}
	part("rehearsal", func(u *upgrading) {
		stages := rehearse(u.t, u.command, newCommand(u.t), "upgrade", "--to-set", u.set).stages()
		for _, stage := range []string{"providers", "talos", "kubernetes-1-35-4", "workers"} {
			if !slices.Contains(stages, stage) {
				u.t.Errorf("the report has no stage %s: %v", stage, stages)
			}
		}
	})
	part("upgrade", func(u *upgrading) {
		u.fromGuide(2, guideMoments(true))
		u.again()
		providersAre(u.t, u.command, newerProviders)
	})
}

// ofGuide is a cluster of the guide's set with one control plane server. Its configuration does not name the set.
func ofGuide(t *testing.T, target string, values ...string) *upgrading {
	t.Helper()
	if os.Getenv(crashVariable) == "" {
		t.Skipf("it runs with %s set: make crash-upgrade", crashVariable)
	}
	c := newCommand(t)
	c.env = append([]string{"CONTROL_PLANE_REPLICAS=1"}, values...)
	for _, versions := range []string{"VERSIONS=guide", "VERSIONS=" + supportedSet, "KUBERNETES_VERSION=" + newerKubernetes,
		"KUBERNETES_VERSION=v1.34.9"} {
		if out, err := c.exec(t.Context(), "lab", "build", versions); err != nil {
			t.Fatalf("lab build %s: %v\n%s", versions, err, out)
		}
	}
	o := c.run(nil, target, "--lab", "VERSIONS=guide")
	if t.Logf("%s in %.0fs", target, o.elapsed.Seconds()); o.exit != 0 {
		t.Fatalf("%s: exit %d\n%s", target, o.exit, o.end())
	}
	return &upgrading{t: t, command: c, set: supportedSet}
}

// fromGuide upgrades a cluster of so many nodes to 2026-11, killed at each of the moments and run again. What was written
// before is still there, and every node has the new versions.
func (u *upgrading) fromGuide(nodes int, moments []event) {
	u.t.Helper()
	kept, err := workload(u.t, u.command).CoreV1().ConfigMaps("default").Create(u.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	u.storesState()
	// A run that is killed late has done what the next moment waits for, which is then left out; no stage is.
	steps := map[string]bool{}
	for left := moments; len(left) > 0; {
		o, n := u.killFirst(left)
		if n < 0 {
			u.t.Fatalf("it was not killed at any of %v: exit %d\n%s", left, o.exit, o.end())
		}
		steps[left[n].Step] = true
		left = left[n+1:]
	}
	for _, m := range moments {
		if !steps[m.Step] {
			u.t.Errorf("it was not killed in %s", m.Step)
		}
	}
	u.finish(0)
	if is := u.onlyVersion(u.t, 1); is != supportedKubernetes {
		u.t.Errorf("the server runs %s", is)
	}
	client := workload(u.t, u.command)
	is, err := client.CoreV1().ConfigMaps("default").Get(u.t.Context(), "kept", metav1.GetOptions{})
	if err != nil || is.UID != kept.UID {
		u.t.Errorf("what was written before is %v, %v", is, err)
	}
	all, err := client.CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != nodes {
		u.t.Errorf("%d Nodes, %v", len(all.Items), err)
	}
	for _, n := range all.Items {
		if i := n.Status.NodeInfo; i.KubeletVersion != supportedKubernetes || i.OSImage != "Talos (v1.13.9)" {
			u.t.Errorf("Node %s reports %s on %s", n.Name, i.KubeletVersion, i.OSImage)
		}
	}
	record, err := os.ReadFile(filepath.Join(u.state, "cluster.json"))
	if err != nil || !strings.Contains(string(record), `"versions": "`+u.set+`"`) {
		u.t.Errorf("the state folder does not record the set: %s, %v", record, err)
	}
}
