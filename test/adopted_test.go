package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/platform"
)

// adopted takes the state folder, the files and the reservation of the name away, so that the cluster is as one that
// was created without Slipway, and changed since with kubectl. adopt describes and records it: no server and no Pod is
// touched, nothing is to be done afterwards, and another state folder is refused.
func (d *firstDay) adopted(t *testing.T) {
	group, _, err := d.PlacementGroup.GetByName(t.Context(), "slipway-k8s")
	if err == nil {
		_, err = d.PlacementGroup.Delete(t.Context(), &hcloud.PlacementGroup{ID: group.ID})
	}
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(d.state, platform.Kubeconfig)
	in := func() *command {
		c := *d.command
		c.dir = t.TempDir()
		c.state = filepath.Join(c.dir, "state")
		return &c
	}
	lab := []string{"--lab", "--lab-dir", filepath.Join(d.state, "lab")}
	adopt := append([]string{"adopt", "MANAGEMENT_KUBECONFIG=" + kubeconfig}, lab...)
	watched := []string{"kube-system", "capi-system", "caph-system"}
	servers, pods := serverWrites(t, d.command), podUIDs(t, d.command, watched...)
	c := in()
	said, err := c.exec(t.Context(), append(adopt, "--dry-run")...)
	if err != nil || !strings.Contains(said, "strategicPatches [11 items]") ||
		!strings.Contains(said, "least_connections") {
		t.Errorf("adopt --dry-run: %v\n%s", err, said)
	}
	if left, err := os.ReadDir(c.dir); err != nil || len(left) > 0 {
		t.Errorf("adopt --dry-run has left %v, %v", left, err)
	}
	killed := c.run(func(e event, p *os.Process) {
		if e.Step == "apply" {
			_ = p.Kill()
		}
	}, append(adopt, "--yes")...)
	if killed.exit == 0 {
		t.Fatalf("it was not killed: %s", killed.output)
	}
	backups, passphrase := t.TempDir(), filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct-horse-battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := []string{"BACKUP_TO=" + backups, "BACKUP_PASSPHRASE_FILE=" + passphrase}
	if o := c.run(nil, append(append(adopt, "--yes"), keys...)...); o.exit != 0 {
		t.Fatalf("resumed: exit %d\n%s", o.exit, o.end())
	}
	first, err := filepath.Glob(filepath.Join(backups, "k8s-*.slipway"))
	if err != nil || len(first) != 1 {
		t.Fatalf("its first backup: %v, %v", first, err)
	}
	if said, err := c.exec(t.Context(), append([]string{"backup", "verify", first[0]}, keys...)...); err != nil {
		t.Errorf("backup verify: %v\n%s", err, said)
	}
	if said, err := c.exec(t.Context(), append([]string{"plan", "bootstrap", "--detailed-exitcode"}, lab...)...); err != nil {
		t.Errorf("plan: %v\n%s", err, said)
	}
	if after := serverWrites(t, d.command); !slices.Equal(after, servers) {
		t.Errorf("servers were touched: %v", after[len(servers):])
	}
	samePods(t, d.command, pods, watched...)
	if o := in().run(nil, append(adopt, "--yes")...); o.exit != 2 || !strings.Contains(o.output, "another state folder's") {
		t.Errorf("from another state folder: exit %d\n%s", o.exit, o.end())
	}
}
