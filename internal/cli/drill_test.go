package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func TestADrillKeepsOutOfOtherFolders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := filepath.Join(dir, "mine")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, statedir.EnvironmentFile), []byte(statedir.EnvironmentHetzner+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, dir)
	for _, args := range []string{"drill --state-dir mine", "drill --state-dir mine --lab", "drill --backup missing",
		"drill --backup mine/world", "drill --faults x"} {
		if r := execute(t, t.Context(), dir, "", strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if after := folderContents(t, dir); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestDrillIsPrinted(t *testing.T) {
	r := drill.Report{Cluster: "k8s", Passed: true, RTO: 150 * time.Second, Bootstrap: 100 * time.Second, Ratio: 1.5,
		Comparisons: []drill.Comparison{{What: "the same cluster", Same: true}, {What: "the same data"}},
		RPO:         drill.Loss{Time: 12 * time.Second, Written: 20, Gone: 10}}
	for _, passed := range []bool{true, false} {
		r.Passed = passed
		var out bytes.Buffer
		if err := printDrill(&out, r); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{map[bool]string{true: "has passed", false: "has FAILED"}[passed], "RTO  2m30s", "1.50",
			"RPO  12.0s", "DIFFERS"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not say %q:\n%s", want, out.String())
			}
		}
	}
}
