package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/manifests"
)

// TestApplyInPlace brings a patch of the machine configuration to the servers that there are. A run that is killed is
// undone with the configuration of before, and completed; in the end Cluster API makes new servers with the patch, and
// has replaced none.
func TestApplyInPlace(t *testing.T) {
	l := &lostCluster{command: bootstrapped(t, "all")}
	servers, boots := l.clusterServerIDs(t), l.bootIDs(t)
	files := withPatch(t, "machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n")
	in := func(folder string) []string {
		args := []string{"apply", "--in-place", "--yes", "--lab"}
		if folder != "" {
			args = append(args, "--dir", folder)
		}
		return args
	}
	same := func(when string) {
		t.Helper()
		if now := l.clusterServerIDs(t); !slices.Equal(now, servers) {
			t.Errorf("%s: the servers are %v, they were %v", when, now, servers)
		}
		if now := l.bootIDs(t); fmt.Sprint(now) != fmt.Sprint(boots) {
			t.Errorf("%s: servers have booted: %v, it was %v", when, now, boots)
		}
	}

	const change = "changes TalosControlPlane k8s-control-plane in place: machine.sysctls.vm.max_map_count ("
	if out, err := l.exec(t.Context(), "-n", "apply", "--in-place", "--lab", "--dir", files); err != nil ||
		!strings.Contains(out, change) {
		t.Errorf("-n apply --in-place: %v\n%s", err, out)
	}
	l.sysctl(t, "")

	// Cut off with one server changed, and with Cluster API in between: back to what was before.
	const apply = " talos ApplyConfiguration machine.MachineService#"
	const provider = " workload patch deployments.apps/cacppt-system/cacppt-controller-manager#1"
	const plane = " workload patch taloscontrolplanes.controlplane.cluster.x-k8s.io/default/k8s-control-plane#1"
	const machine = " workload patch machines.cluster.x-k8s.io/default/k8s-control-plane-*#1"
	for _, moment := range []string{"before" + apply + "2", "applied" + plane, "applied" + machine} {
		r := *l.command
		r.env = append(slices.Clone(l.env), effect.CrashVariable+"="+moment)
		if o := r.run(nil, in(files)...); o.exit != -1 {
			t.Fatalf("killed %s: exit %d\n%s", moment, o.exit, o.end())
		}
		for _, target := range []string{"apply", "all"} {
			o := l.run(nil, target, "--yes", "--lab")
			if o.exit == 0 || !strings.Contains(o.output, "apply --in-place") {
				t.Errorf("%s, after a kill %s: exit %d\n%s", target, moment, o.exit, o.end())
			}
		}
		if o := l.run(nil, in("")...); o.exit != 0 {
			t.Fatalf("undone after a kill %s: exit %d\n%s", moment, o.exit, o.end())
		}
		l.sysctl(t, "")
		if out, err := l.exec(t.Context(), "plan", "all", "--detailed-exitcode", "--lab"); err != nil {
			t.Errorf("plan, after a change was undone: %v\n%s", err, out)
		}
		same("undone after a kill " + moment)
	}

	o := l.killedAt(t, []string{"applied" + apply + "1", "before" + apply + "1",
		"applied" + plane, "before" + machine, "applied" + machine, "before" + provider, "applied" + provider},
		func(string) {}, in(files)...)
	if strings.Contains(o.output, "PRIVATE KEY") {
		t.Error("a key is in the output")
	}
	l.sysctl(t, "262144")
	same("applied")
	if out, err := l.exec(t.Context(), "plan", "all", "--detailed-exitcode", "--lab", "--dir", files); err != nil {
		t.Errorf("plan, afterwards: %v\n%s", err, out)
	}
	if o := l.run(nil, "replace-machine", l.project().clusterServers(t)[0].Name, "--lab", "--dir", files); o.exit != 0 {
		t.Fatalf("replace-machine, afterwards: exit %d\n%s", o.exit, o.end())
	}
	l.sysctl(t, "262144")
}

// withPatch is a folder with the manifests, and a patch more.
func withPatch(t *testing.T, patch string) string {
	t.Helper()
	const before = "      strategicPatches:\n"
	text := string(must(manifests.Files.ReadFile(manifests.Cluster))(t))
	if !strings.Contains(text, before) {
		t.Fatalf("%s has no line %q", manifests.Cluster, before)
	}
	more := "        - |\n"
	for line := range strings.Lines(patch) {
		more += "          " + line
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "manifests", "cluster.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(text, before, before+more, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// sysctl checks what each server runs with, and what Cluster API makes it from again: the TalosConfig and the Secret of
// each Machine. There is one TalosConfig for each.
func (l *lostCluster) sysctl(t *testing.T, want string) {
	t.Helper()
	const line = "vm.max_map_count: \"262144\""
	wrong := func(what, text string) {
		t.Helper()
		if strings.Contains(text, line) != (want != "") {
			t.Errorf("%s: the sysctl is not %q", what, want)
		}
	}
	credentials := must(talos.Parse(must(os.ReadFile(filepath.Join(l.state, "talosconfig")))(t)))(t)
	for _, s := range l.project().clusterServers(t) {
		is, err := credentials.MachineConfig(t.Context(), talos.Route{Endpoint: s.PublicNet.IPv4.IP.String()})
		if err != nil {
			t.Fatal(err)
		}
		wrong("server "+s.Name, string(must(is.Bytes())(t)))
	}
	c := l.cluster(t)
	machines := must(capi.List(t.Context(), c, config.DefaultNamespace, capi.MachineKind, "k8s"))(t)
	configs := capi.ListOf(capi.TalosConfigKind)
	if err := c.List(t.Context(), configs, client.InNamespace(config.DefaultNamespace)); err != nil ||
		len(configs.Items) != len(machines) {
		t.Errorf("%d TalosConfigs of %d Machines: %v", len(configs.Items), len(machines), err)
	}
	for i := range machines {
		m := &machines[i]
		name := capi.Text(m, "spec", "bootstrap", "configRef", "name")
		one := must(capi.Get(t.Context(), c, config.DefaultNamespace, capi.TalosConfigKind, name))(t)
		patches, _, _ := unstructured.NestedStringSlice(one.Object, "spec", "strategicPatches")
		wrong("TalosConfig "+name, strings.Join(patches, "\n"))
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: config.DefaultNamespace,
			Name: capi.Text(m, "spec", "bootstrap", "dataSecretName")}
		if err := c.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		wrong("Secret "+key.Name, string(secret.Data["value"]))
		owners := slices.DeleteFunc(secret.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind != one.GetKind()
		})
		if len(owners) != 1 || owners[0].UID != one.GetUID() {
			t.Errorf("Secret %s is owned by %v, and not by TalosConfig %s", key.Name, owners, name)
		}
	}
}
