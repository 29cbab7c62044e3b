package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// applied changes the server type and a Talos patch in the files, and has apply bring both to the cluster: killed once
// the first server is replaced, and run again. What was changed with kubectl before stays.
func (d *firstDay) applied(t *testing.T) {
	own := t.TempDir()
	manifest, err := os.ReadFile("../manifests/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const list, patch = "strategicPatches:\n", `        - 'machine: {sysctls: {vm.max_map_count: "262144"}}'` + "\n"
	if err = os.Mkdir(filepath.Join(own, "manifests"), 0o755); err == nil {
		err = os.WriteFile(filepath.Join(own, "manifests", "cluster.yaml"),
			[]byte(strings.Replace(string(manifest), list, list+patch, 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	infrastructure := func(patch string) string {
		t.Helper()
		data, err := workload(t, d.command).RESTClient().Patch(types.MergePatchType).AbsPath(
			"/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/default/hetznerclusters/k8s").
			Body([]byte(patch)).Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	infrastructure(`{"spec":{"controlPlaneLoadBalancer":{"algorithm":"least_connections"}}}`)
	names := func() (all []string) {
		for _, s := range d.clusterServers(t) {
			all = append(all, s.Name)
		}
		slices.Sort(all)
		return all
	}
	before := names()
	args := []string{"apply", "--lab", "--dir", own, "SERVER_TYPE=cx43", "LOAD_BALANCER_TYPE=lb21"}
	if o := d.run(nil, args...); o.exit != 2 || !strings.Contains(o.output, "--yes") {
		t.Fatalf("without consent: exit %d\n%s", o.exit, o.end())
	}
	if said, err := d.exec(t.Context(), append([]string{"plan"}, args...)...); err != nil ||
		!strings.Contains(said, "server type cx33 → cx43, strategicPatches [10 items] → [11 items]") ||
		!strings.Contains(said, "spec.controlPlaneLoadBalancer.type lb11 → lb21") {
		t.Errorf("plan: %v\n%s", err, said)
	}
	if now := names(); !slices.Equal(now, before) {
		t.Fatalf("plan and a refusal changed servers: %v", now)
	}
	watched := watchEtcd(t, d.command)
	if o := d.run(nil, append(args, "--pause-after", "first-server", "--yes")...); o.exit != 0 ||
		!strings.Contains(o.output, "upgrade --abort") {
		t.Fatalf("paused after the first server: exit %d\n%s", o.exit, o.end())
	}
	if now := names(); len(now) != len(before)+1 || slices.ContainsFunc(before, func(name string) bool {
		return !slices.Contains(now, name)
	}) {
		t.Errorf("paused after the first server: %v, before %v", now, before)
	}
	if said, _ := d.exec(t.Context(), "status", "--lab"); !strings.Contains(said,
		"was ended after first-server, as asked") {
		t.Errorf("status does not say that the change is paused:\n%s", said)
	}
	if o := d.run(nil, append([]string{"all"}, args[1:]...)...); o.exit != 2 ||
		!strings.Contains(o.output, "pauses after first-server") {
		t.Errorf("all with a change that is paused: exit %d\n%s", o.exit, o.end())
	}
	killed := d.run(func(e event, p *os.Process) {
		if strings.Contains(e.Message, "2 of 3 servers") {
			_ = p.Kill()
		}
	}, append(args, "--yes")...)
	if killed.exit == 0 {
		t.Fatalf("it was not killed: %s", killed.output)
	}
	if said, _ := d.exec(t.Context(), "status", "--lab"); !strings.Contains(said, "was cut off at stage configuration") ||
		!strings.Contains(said, "apply SERVER_TYPE=cx43 LOAD_BALANCER_TYPE=lb21 --dir "+own) {
		t.Errorf("status does not name the change that was cut off:\n%s", said)
	}
	// All resumes it, too: it was agreed to.
	if o := d.run(nil, append([]string{"all"}, args[1:]...)...); o.exit != 0 || !slices.ContainsFunc(o.events,
		func(e event) bool { return e.Step == "configuration" && e.Kind == "step-done" }) {
		t.Fatalf("resumed: exit %d\n%s", o.exit, o.end())
	}
	watched.oneAtATime(t, 3, 3)
	nodesReady(t, d.command, 3)
	votingMembers(t, d.command, 3)
	after := names()
	if len(after) != 3 || slices.ContainsFunc(after, func(name string) bool { return slices.Contains(before, name) }) {
		t.Errorf("the servers are %v, and were %v", after, before)
	}
	if is := infrastructure(`{}`); !strings.Contains(is, `"least_connections"`) || !strings.Contains(is, `"lb21"`) {
		t.Errorf("the HetznerCluster is %s", is)
	}
	if o := d.run(nil, append([]string{"all"}, args[1:]...)...); o.exit != 0 {
		t.Errorf("all with the same configuration: exit %d\n%s", o.exit, o.end())
	}
	if o := d.run(nil, args...); o.exit != 0 || !strings.Contains(o.output, "there is nothing to change") {
		t.Errorf("a second time: exit %d\n%s", o.exit, o.end())
	}
}
