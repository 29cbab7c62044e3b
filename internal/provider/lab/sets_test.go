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
func TestSetsFromSource(t *testing.T) {
	c := with(func(c *config.Config) {
		c.LabPrograms, c.KubernetesVersion, c.CAPIVersion = config.LabProgramsSource, "v1.32.2", "v1.10.10"
	})
	source, err := findModule(mustWorkDir(t))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	b := &builder{source: source, cache: filepath.Join(home, "lab"), env: os.Environ(), lab: home,
		sets: &imageSets{config: c, dir: filepath.Join(home, "lab-images")}}
	first, _, err := b.bin(t.Context(), toolset{module: source})
	if err != nil {
		t.Fatal(err)
	}
	find := func(k Kind, wanted, minor, bin string, own bool) programSet {
		t.Helper()
		set := programSet{kind: k, wanted: wanted}
		if _, err := b.toolsFor(t.Context(), &set); err != nil {
			t.Fatal(err)
		}
		if minorOf(set.version) != minor || set.own != own || (set.bin == bin) == own {
			t.Errorf("%s %s: %+v", k.Name, wanted, set)
		}
		return set
	}
	find(Kubernetes(), "v1.32.9", "v1.32", first, false)
	find(Kubernetes(), "v1.31.5", "v1.32", first, false) // the next newer minor that the source has
	find(Kubernetes(), "v1.99.0", "v1.36", first, true)  // the newest
	find(Core(), "v1.10.3", "v1.10", first, false)
	find(Core(), "v1.9.3", "v1.10", first, false)
	for _, newer := range []string{"v1.11.0", "v1.13.6", "v1.14.3"} {
		find(Core(), newer, "v1.13", first, true)
	}
	other := find(Kubernetes(), "v1.33.5", "v1.33", first, true)

	// With another minor configured, the lab's own set has neither Kubernetes nor the core that are not run.
	b.sets.config.KubernetesVersion, b.sets.config.CAPIVersion = "v1.35.1", "v1.13.6"
	own, err := b.ownTools()
	if err != nil || !slices.Equal(own.packages, commonTools()) {
		t.Errorf("the lab's own set is of %q, %v", own.packages, err)
	}
	small, _, err := b.bin(t.Context(), own)
	if err != nil || small == first {
		t.Errorf("it is in %s, %v", small, err)
	}
	if older := find(Kubernetes(), "v1.32.9", "v1.32", small, true); older.bin == first {
		t.Error("the Kubernetes of the lab's own module, asked for besides, is built with everything else")
	}
	b.sets.config = c

	// What a lab build --check says.
	b.sets.config.KubernetesVersion = "v1.33.5"
	if own, err = b.ownTools(); err != nil || !slices.Contains(own.packages, corePath) {
		t.Errorf("the lab's own set is of %q, %v", own.packages, err)
	}
	if first, _, err = b.bin(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(first, "server"), "program")
	if err := b.setsBuilt(t.Context(), first); err == nil ||
		!strings.Contains(err.Error(), "lab build KUBERNETES_VERSION=v1.33.5") {
		t.Errorf("before it is built: %v", err)
	}
	writeFile(t, filepath.Join(other.bin, "kube-apiserver"), "program")
	if err := b.setsBuilt(t.Context(), first); err != nil {
		t.Errorf("when it is built: %v", err)
	}

	// A lab that starts has what is configured, first, and what was before.
	if err := b.record(Kubernetes(), "v1.34.9"); err != nil {
		t.Fatal(err)
	}
	before := find(Kubernetes(), "v1.34.9", "v1.34", first, true)
	writeFile(t, filepath.Join(before.bin, "kube-apiserver"), "program")
	for range 2 {
		sets, err := b.allSetsToRun(t.Context(), first, quiet)
		if err != nil || len(sets) != 3 || sets[0].bin != other.bin || sets[1].bin != before.bin || sets[2].bin != first {
			t.Errorf("a lab runs %+v, %v", sets, err)
		}
	}
	l := &Lab{Dir: home, Latency: "fast"}
	args := strings.Join(l.arguments(first, "", []programSet{other, {kind: Core(), wanted: "v1.13.6", bin: "/core"}}, "/flux",
		"/gitea", ""), " ")
	for _, part := range []string{"--kubernetes v1.33.5=" + other.bin, "--core v1.13.6=/core", "--flux /flux"} {
		if !strings.Contains(args, part) {
			t.Errorf("its arguments are %s, without %s", args, part)
		}
	}
}

// Out of images a server runs exactly its version; the programs of another one are fetched without etcd and providers.
func TestSetsOutOfImagesBesides(t *testing.T) {
	one := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsImages })
	two := with(func(c *config.Config) { c.KubernetesVersion = "v1.33.13" })
	r := serveImages(t, one, two)
	b := r.builderOf(t, one, t.TempDir())
	bin, err := b.programs(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	k := Kubernetes()
	if set, err := b.setFor(t.Context(), k, one.KubernetesVersion, true, quiet); err != nil || set.bin != bin || set.own {
		t.Errorf("the configured version: %+v, %v", set, err)
	}
	before := r.count()
	set, err := b.setFor(t.Context(), k, "v1.33.13", true, quiet)
	if err != nil || !set.own || set.bin == bin || !b.sets.has(set.bin) || r.count() == before {
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
	if err := b.record(k, "v1.30.1"); err != nil {
		t.Fatal(err)
	}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	sets, err := b.setsToRun(t.Context(), k, bin, say)
	if err != nil || len(sets) != 1 || sets[0].bin != bin || !strings.Contains(strings.Join(said, "\n"), "servers of Kubernetes v1.30.1") {
		t.Errorf("with a version that was there before: %+v, %v, said %q", sets, err, said)
	}
}

// mustTools are those of the lab's own module that a configuration runs.
func mustTools(t *testing.T, b *builder) toolset {
	t.Helper()
	tools, err := b.ownTools()
	if err != nil {
		t.Fatal(err)
	}
	return tools
}
