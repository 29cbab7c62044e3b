package test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// logs reads what the controllers have written in the cluster that manages
// itself, with their real logs through its API.
func (d *firstDay) logs(t *testing.T) {
	o := d.run(nil, "logs", "--no-follow")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	type line struct{ Cluster, Controller, Pod, Text string }
	controllers, approved := map[string]int{}, false
	for text := range strings.Lines(o.output) {
		var l line
		if json.Unmarshal([]byte(text), &l) != nil {
			continue // a note: Cilium is simulated
		}
		if l.Cluster != "k8s" {
			t.Fatalf("a line of cluster %q: the controllers run in k8s, and nowhere else", l.Cluster)
		}
		controllers[l.Controller]++
		approved = approved || l.Controller == "talos-ccm" && strings.Contains(l.Text, "csr")
	}
	if got := slices.Sorted(maps.Keys(controllers)); !slices.Equal(got,
		[]string{"cabpt", "cacppt", "caph", "capi", "hcloud-ccm", "talos-ccm"}) {
		t.Errorf("there are logs of %v", controllers)
	}
	if !approved {
		t.Error("talos-ccm does not log a certificate request")
	}
	if !strings.Contains(o.output, "is simulated: the lab has no program for image quay.io/cilium/cilium") {
		t.Error("nothing says why Cilium has no log")
	}
	t.Logf("read in %.1fs: %v lines", o.elapsed.Seconds(), controllers)
}

// report makes the page of the run that made the cluster.
func (d *firstDay) report(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	out, err := d.cmd(t.Context(), "report", "--out", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"lab: a rehearsal", "◆ pivot", "PROVIDER_REPOSITORY", "hcloud://"} {
		if !strings.Contains(string(page), says) {
			t.Errorf("the report does not say %q", says)
		}
	}
	if strings.Contains(string(page), plantedToken) {
		t.Error("the token is in the report")
	}
}
