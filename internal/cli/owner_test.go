package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// treeDigest changes with every name, mode and content in a folder.
func treeDigest(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		info, infoErr := d.Info()
		if err != nil || infoErr != nil {
			return err
		}
		sum.Write([]byte(path + info.Mode().String()))
		sum.Write(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ownedFolder is a state folder of cluster k8s with a kubeconfig. Without the record it is one of an earlier release.
func ownedFolder(t *testing.T, environment string, recorded bool) statedir.Dir {
	t.Helper()
	s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	for name, text := range map[string]string{statedir.EnvironmentFile: environment + "\n", "kubeconfig": "k8s's",
		"management.kubeconfig": "k8s-mgmt's"} {
		if err := s.Files().Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if recorded {
		if err := (ownership.Record{Cluster: "k8s"}).Write(s.Files()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	err := s.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{
			"apply": {State: flow.StateDone, Output: json.RawMessage(`{"name":"k8s"}`)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every target refuses the state folder of another cluster, before it asks or changes anything.
func TestFolderOfAnotherClusterIsRefused(t *testing.T) {
	hetzner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("Hetzner was asked: %s %s", r.Method, r.URL)
	}))
	defer hetzner.Close()
	// These do not use the state folder.
	without := []string{"state list", "backup list", "backup verify", "backup key", "backup cronjob", "recover-releases cronjob",
		"config", "completion", "help", "drill", "version", "fleet"}
	more := map[string][]string{
		"replace-machine": {"some"}, "scale": {"control-plane", "5"}, "lab save": {"to"}, "lab load": {"from"}, "lab fault add": {"api-slow"},
		"lab fault remove": {"1"}, "deps audit": {"--live"}, "deps graph": {"--live"}, "gitops init": {"fleet"},
	}
	var all [][]string
	for _, target := range targets(t) {
		name := pathOf(target)
		words := append(strings.Fields(name), more[name]...)
		if name == "restore" {
			words = append(words, "--diagnose")
		}
		if name == "readopt" { // it reads the backup first, which names the cluster
			continue
		}
		skip := false
		for _, other := range without {
			skip = skip || strings.HasPrefix(name, other)
		}
		if !skip {
			all = append(all, words)
		}
	}
	plan, err := steps.New(config.Defaults(), platform.Tools{Management: kind.Given{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Graph.Steps() {
		all = append(all, []string{s.Name})
	}
	all = append(all, []string{"pivot", "--abort"}, []string{"image", "--prune"}, []string{"destroy", "--dry-run"},
		[]string{"all", "-n"})
	labOnly := []string{"config", "show"} // without --lab it does not look at the folder
	// Where the folder is not refused some targets would run for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, recorded := range []bool{true, false} {
		for _, environment := range []string{statedir.EnvironmentHetzner, statedir.EnvironmentLab} {
			s := ownedFolder(t, environment, recorded)
			before := treeDigest(t, string(s))
			asked := all
			if environment == statedir.EnvironmentLab {
				asked = append(slices.Clone(all), labOnly)
			}
			for _, words := range asked {
				args := append([]string{"--state-dir", string(s), "CLUSTER_NAME=other", "--yes"}, words...)
				if environment == statedir.EnvironmentLab {
					args = append(args, "--lab")
				}
				r := execute(t, ctx, t.TempDir(), "HCLOUD_TOKEN=x HCLOUD_ENDPOINT="+hetzner.URL, args...)
				if r.code != ExitUsage || !strings.Contains(r.stderr, "this folder belongs to cluster k8s") {
					t.Errorf("%s, record %t: %q: %+v", environment, recorded, words, r)
				}
			}
			if treeDigest(t, string(s)) != before {
				t.Errorf("%s, record %t: a file of cluster k8s was changed", environment, recorded)
			}
		}
	}
}

// A lab needs no cluster's name: only one that was given is checked.
func TestLabOfAFolderNeedsNoName(t *testing.T) {
	s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	if err := (ownership.Record{Cluster: "demo", Reservation: 1}).Write(s.Files()); err != nil {
		t.Fatal(err)
	}
	r := execute(t, t.Context(), t.TempDir(), "", "lab", "status", "--state-dir", string(s))
	if r.code == ExitUsage || strings.Contains(r.stderr, "belongs to") {
		t.Errorf("%+v", r)
	}
	r = execute(t, t.Context(), t.TempDir(), "", "lab", "status", "--state-dir", string(s), "CLUSTER_NAME=k8s")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "this folder belongs to cluster demo") {
		t.Errorf("%+v", r)
	}
	// Of everything else the default name is that of another cluster.
	r = execute(t, t.Context(), t.TempDir(), "", "status", "--state-dir", string(s))
	if r.code != ExitUsage || !strings.Contains(r.stderr, "add CLUSTER_NAME=demo") {
		t.Errorf("%+v", r)
	}
}

func TestClaimRecordsTheCluster(t *testing.T) {
	s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	if err := s.Claim(t.Context(), statedir.Owner{Cluster: "typo"}, statedir.EnvironmentHetzner, quiet); err != nil {
		t.Fatal(err)
	}
	// Nothing was made for it: a mistyped name does not keep the folder.
	if err := s.Claim(t.Context(), statedir.Owner{Cluster: "k8s"}, statedir.EnvironmentHetzner, quiet); err != nil {
		t.Fatal(err)
	}
	recordStep(t, s, "image")
	err := s.Claim(t.Context(), statedir.Owner{Cluster: "other"}, statedir.EnvironmentHetzner, quiet)
	if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "belongs to cluster k8s") {
		t.Errorf("the folder of a cluster: %v", err)
	}
	if _, err := s.Claimed(statedir.Owner{Cluster: "other"}, statedir.EnvironmentHetzner, s.Journal()).Lock(t.Context()); err == nil {
		t.Error("a run of another cluster has the folder's lock")
	}
	owner, err := ownership.Read(s.Files())
	if err != nil || owner == nil || owner.Cluster != "k8s" {
		t.Errorf("the record is %+v, %v", owner, err)
	}
	unlock, err := s.Claimed(statedir.Owner{Cluster: "k8s"}, statedir.EnvironmentHetzner, s.Journal()).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// An earlier release let two clusters into one folder. Neither is chosen for the operator.
func TestFolderOfTwoClusters(t *testing.T) {
	s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	err := s.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{
			"apply":       {State: flow.StateDone, Output: json.RawMessage(`{"name":"k8s"}`)},
			"kind-create": {State: flow.StateDone, Output: json.RawMessage(`{"provider":"kind","name":"other-mgmt","uid":"u"}`)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"k8s", "other"} {
		err := s.CheckOwner(t.Context(), statedir.Owner{Cluster: name})
		if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "several clusters: k8s, other") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.CheckOwner(t.Context(), statedir.Owner{Cluster: "third"}); err == nil {
		t.Error("a third one may have it")
	}
}

// A folder of an earlier release whose journal is lost, or cannot be read, is still that of the cluster whose
// kubeconfig is in it.
func TestFolderWithoutAJournalBelongsToTheClusterOfItsKubeconfig(t *testing.T) {
	for name, journal := range map[string]string{"lost": "", "damaged": "{"} {
		s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
		writeFile(t, s.Path("kubeconfig"), "apiVersion: v1\nkind: Config\ncurrent-context: k8s-admin@k8s\n")
		if journal != "" {
			writeFile(t, s.Path(statedir.JournalFile), journal)
		}
		err := s.CheckOwner(t.Context(), statedir.Owner{Cluster: "other"})
		if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "belongs to cluster k8s") {
			t.Errorf("%s: another cluster: %v", name, err)
		}
		if err := s.CheckOwner(t.Context(), statedir.Owner{Cluster: "k8s"}); err != nil {
			t.Errorf("%s: its own cluster: %v", name, err)
		}
	}
}
