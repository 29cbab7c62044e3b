package architecture

import (
	"os/exec"
	"strings"
	"testing"
)

// Packages that both the command and the lab are built from are of one version: with the same dependencies Go compiles
// them once. Without this the first rehearsal on a machine takes minutes longer. Talos's machinery is another one: the
// command's is that of the default version of Talos, whose patches the doctor examines with it, and the lab's reads
// the configurations of every version.
func TestTheLabSharesModules(t *testing.T) {
	versions := func(dir string, packages ...string) map[string]string {
		cmd := exec.Command("go", append([]string{"list", "-deps", "-f",
			"{{with .Module}}{{.Path}} {{.Version}}{{end}}"}, packages...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		found := map[string]string{}
		for line := range strings.Lines(string(out)) {
			if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				found[module] = version
			}
		}
		return found
	}
	command := versions("../..", "./cmd/bootstrap")
	shared := 0
	for module, version := range versions("../../lab", "./cmd/lab") {
		switch other := command[module]; {
		case other == "", module == "github.com/siderolabs/talos/pkg/machinery":
		case other == version:
			shared++
		default:
			t.Errorf("%s is %s in lab/go.mod and %s in go.mod: go get one of them in the other module", module, version, other)
		}
	}
	if shared < 20 {
		t.Errorf("only %d modules are shared", shared)
	}
}
