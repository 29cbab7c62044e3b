package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

// From source each minor has a set of its own where the source names one, and is built only when it is asked for.
func TestKubernetesFromSource(t *testing.T) {
	c := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsSource })
	source, err := findModule(mustWorkDir(t))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	b := &builder{source: source, cache: filepath.Join(home, "lab"), env: os.Environ(), lab: home,
		sets: &imageSets{config: c, dir: filepath.Join(home, "lab-images")}}
	first, _, err := b.bin(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	find := func(wanted string) kubernetesSet {
		t.Helper()
		set := kubernetesSet{wanted: wanted}
		if _, err := b.moduleFor(t.Context(), &set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	if set := find("v1.32.9"); set.bin != first || set.needed() || minorOf(set.version) != "v1.32" {
		t.Errorf("the minor of the lab's own set: %+v", set)
	}
	other := find("v1.33.5")
	if other.bin == first || !other.own || !other.needed() || minorOf(other.version) != "v1.33" {
		t.Errorf("a minor with a module: %+v", other)
	}
	if set := find("v1.31.5"); set.bin != first || set.own || !set.needed() || minorOf(set.version) != "v1.32" {
		t.Errorf("a minor without a module: %+v", set)
	}

	// What a lab build --check says.
	b.sets.config.KubernetesVersion = "v1.33.5"
	writeFile(t, filepath.Join(first, "server"), "program")
	if err := b.kubernetesBuilt(t.Context(), first); err == nil ||
		!strings.Contains(err.Error(), "lab build KUBERNETES_VERSION=v1.33.5") {
		t.Errorf("before it is built: %v", err)
	}
	writeFile(t, filepath.Join(other.bin, "kube-apiserver"), "program")
	if err := b.kubernetesBuilt(t.Context(), first); err != nil {
		t.Errorf("when it is built: %v", err)
	}

	// A lab that starts has what is configured, and what was before.
	if err := b.recordKubernetes("v1.31.5"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sets, err := b.kubernetesToRun(t.Context(), first, quiet)
		if err != nil || len(sets) != 2 || sets[0].wanted != "v1.31.5" || sets[0].bin != first || sets[1] != other {
			t.Errorf("a lab runs %+v, %v", sets, err)
		}
	}
	l := &Lab{Dir: home, Latency: "fast"}
	if args := l.arguments(first, "", []kubernetesSet{other}, "/flux", "/gitea", ""); !slices.Contains(args, "v1.33.5="+other.bin) ||
		!strings.Contains(strings.Join(args, " "), "--flux /flux") {
		t.Errorf("its arguments are %q", args)
	}
}

// Out of images a server runs exactly its version; the programs of another one are fetched without etcd and providers.
func TestKubernetesOutOfImages(t *testing.T) {
	one := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsImages })
	two := with(func(c *config.Config) { c.KubernetesVersion = "v1.33.13" })
	r := serveImages(t, one, two)
	b := r.builderOf(t, one, t.TempDir())
	bin, err := b.programs(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if set, err := b.kubernetesFor(t.Context(), one.KubernetesVersion, true, quiet); err != nil || set.bin != bin || set.needed() {
		t.Errorf("the configured version: %+v, %v", set, err)
	}
	before := r.count()
	set, err := b.kubernetesFor(t.Context(), "v1.33.13", true, quiet)
	if err != nil || !set.needed() || set.bin == bin || !b.sets.has(set.bin) || r.count() == before {
		t.Fatalf("another version: %+v, %v", set, err)
	}
	files, err := filepath.Glob(filepath.Join(set.bin, "*"))
	if err != nil || len(files) != 4 { // three programs, and the list of where they are from
		t.Errorf("it has %v, %v", files, err)
	}
	if data, err := os.ReadFile(filepath.Join(set.bin, "kube-scheduler")); err != nil ||
		string(data) != "registry.k8s.io/kube-scheduler:v1.33.13" {
		t.Errorf("its scheduler is %q, %v", data, err)
	}

	// A version that is not to be had ends a start only where it is the configured one.
	if err := b.recordKubernetes("v1.30.1"); err != nil {
		t.Fatal(err)
	}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	sets, err := b.kubernetesToRun(t.Context(), bin, say)
	if err != nil || len(sets) != 0 || !strings.Contains(strings.Join(said, "\n"), "servers of Kubernetes v1.30.1") {
		t.Errorf("with a version that was there before: %+v, %v, said %q", sets, err, said)
	}
}
