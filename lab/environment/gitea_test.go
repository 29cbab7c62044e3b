package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/gitea"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/programs"
)

// giteaLab is a lab that may run Gitea's program, which this test builds.
func giteaLab(t *testing.T) *Lab {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module code.gitea.io/gitea\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "bin", "gitea"), ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lab := &Lab{cfg: Config{Dir: t.TempDir(), Gitea: filepath.Join(dir, "bin")}, held: &folder.Held{},
		core: programs.NewSets(programs.Core())}
	lab.programs = append(lab.programs, kubelet.GiteaProgram(lab.cfg.Gitea, lab.realGitea.Load))
	lab.programs = append(lab.programs, kubelet.DefaultPrograms(lab.core)...)
	t.Cleanup(func() {
		if err := lab.held.Release(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// The status says whether Gitea itself runs or the stand-in, and of which version; a lab that is told to runs the program
// at its next start, too.
func TestGiteaOrItsStandIn(t *testing.T) {
	lab := giteaLab(t)
	part := func() (found []Part) {
		for _, p := range lab.imageParts(nil) {
			if p.Name == "gitea" || p.Name == "other versions" {
				found = append(found, p)
			}
		}
		return found
	}
	if err := lab.resumeGitea(); err != nil {
		t.Fatal(err)
	}
	if got := part(); len(got) != 1 || got[0].Fidelity != kubelet.StandIn || !strings.Contains(got[0].Detail, gitea.Version) {
		t.Errorf("not told to: %v", got)
	}
	if got := lab.giteaInfo(); got.Fidelity != kubelet.StandIn || got.Version != gitea.Version || got.Unreachable == "" {
		t.Errorf("not told to: %+v", got)
	}
	if err := os.WriteFile(lab.path(giteaFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := lab.resumeGitea(); err != nil {
		t.Fatal(err)
	}
	if got := part(); len(got) != 1 || got[0].Fidelity != kubelet.Real ||
		!strings.HasPrefix(got[0].Detail, "code.gitea.io/gitea ") {
		t.Errorf("told to: %v", got)
	}
	if got := lab.giteaInfo(); got.Fidelity != kubelet.Real {
		t.Errorf("told to: %+v", got)
	}
}

// Without its program a lab keeps the stand-in, and says what is missing where it is asked for more.
func TestGiteaThatIsNotBuilt(t *testing.T) {
	lab := giteaLab(t)
	if err := os.WriteFile(lab.path(giteaFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lab.giteaProgram()); err != nil {
		t.Fatal(err)
	}
	if err := lab.resumeGitea(); err != nil || lab.realGitea.Load() {
		t.Errorf("%v", err)
	}
	if _, err := lab.serveGitea(nil); err == nil || !strings.Contains(err.Error(), "Gitea's program") || lab.realGitea.Load() {
		t.Errorf("asked for: %v", err)
	}
	lab.cfg.Gitea = ""
	if _, err := lab.serveGitea(nil); err == nil || !strings.Contains(err.Error(), "lab down") {
		t.Errorf("a lab without a folder for it: %v", err)
	}
}
