package architecture

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Packages that both the command and the lab are built from are of one version: with the same dependencies Go compiles
// them once. Without this the first rehearsal on a machine takes minutes longer. Talos's machinery is another one: the
// command's is that of the default version of Talos, whose patches the doctor examines with it, and the lab's reads
// the configurations of every version. And what comes with Kubernetes and etcd is of the release that the lab runs.
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
		case other == "", module == "github.com/siderolabs/talos/pkg/machinery", ofKubernetes(module):
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

// ofKubernetes tells whether a module's version follows from that of Kubernetes or etcd, which require it.
func ofKubernetes(module string) bool {
	return slices.ContainsFunc([]string{"k8s.io/", "sigs.k8s.io/", "go.etcd.io/", "go.opentelemetry.io/",
		"google.golang.org/g", "cel.dev/", "github.com/google/cel-go", "github.com/google/gnostic-models", "github.com/emicklei/go-restful",
		"github.com/jonboulle/clockwork", "github.com/moby/", "github.com/onsi/", "github.com/spf13/"},
		func(prefix string) bool { return strings.HasPrefix(module, prefix) })
}
