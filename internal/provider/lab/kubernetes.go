package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// kubernetesSet is a folder with Kubernetes programs for the servers of a minor version.
type kubernetesSet struct {
	wanted  string // a version of that minor
	version string // of the programs
	bin     string
	own     bool // a set besides the lab's first one
}

// needed says whether a lab has to be given the set: its first one does not do.
func (s kubernetesSet) needed() bool { return s.own || minorOf(s.wanted) != minorOf(s.version) }

// minorOf is the minor version: "v1.33"; empty: text is no version.
func minorOf(text string) string {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d", v.Major, v.Minor)
}

// kubernetesModule is the folder of the module that names the Kubernetes programs of a version's minor; empty: the
// lab's source has none.
func (b *builder) kubernetesModule(version string) string {
	dir := filepath.Join(b.source, "kubernetes", strings.TrimPrefix(minorOf(version), "v"))
	if minorOf(version) == "" || !Exists(filepath.Join(dir, "go.mod")) {
		return ""
	}
	return dir
}

// kubernetesFor makes sure that there are programs for servers of a version: exactly those where they come out of
// images, those of its minor where they are built from source. Of a minor that the source does not have, the set that
// is built anyway stands in.
func (b *builder) kubernetesFor(ctx context.Context, wanted string, fromImages bool, say flow.Say) (kubernetesSet,
	error) {
	set := kubernetesSet{wanted: wanted, version: wanted}
	if fromImages {
		if wanted == b.sets.config.KubernetesVersion {
			set.bin = b.sets.bin()
			return set, nil
		}
		var err error
		set.own = true
		set.bin, err = b.sets.kubernetes(wanted).fetch(ctx, say)
		return set, err
	}
	module, err := b.moduleFor(ctx, &set)
	if err != nil || module == b.source {
		return set, err
	}
	set.bin, err = b.compileTools(ctx, module, "Kubernetes "+set.version, recipe{}, say)
	return set, err
}

// moduleFor finds the module whose Kubernetes programs servers of the set's version run, and completes the set but for
// building it.
func (b *builder) moduleFor(ctx context.Context, set *kubernetesSet) (module string, err error) {
	if set.version, err = b.kubernetesIn(ctx, b.source); err != nil {
		return "", err
	}
	module = b.source
	if other := b.kubernetesModule(set.wanted); other != "" && minorOf(set.version) != minorOf(set.wanted) {
		if set.version, err = b.kubernetesIn(ctx, other); err != nil {
			return "", err
		}
		module, set.own = other, true
	}
	set.bin, _, err = b.bin(ctx, module)
	return module, err
}

// kubernetesBuilt is nil if what servers of the configured version run is there, besides the set in bin.
func (b *builder) kubernetesBuilt(ctx context.Context, bin string) error {
	set := kubernetesSet{wanted: b.sets.config.KubernetesVersion}
	if set.wanted == "" || b.sets.has(bin) {
		return nil
	}
	if _, err := b.moduleFor(ctx, &set); err != nil || Exists(set.bin) {
		return err
	}
	return fmt.Errorf("the programs of Kubernetes %s are not built: %s", set.version,
		platform.ShellCommand("lab", "build", "KUBERNETES_VERSION="+set.wanted))
}

// kubernetesFile, in a lab's folder, lists the versions that its servers may run, one a line.
const kubernetesFile = "kubernetes"

// recordedKubernetes are the versions that the servers of the lab may run.
func (b *builder) recordedKubernetes() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(b.lab, kubernetesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which versions of Kubernetes the lab has: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// recordKubernetes adds a version to those that the servers of the lab may run.
func (b *builder) recordKubernetes(version string) error {
	all, err := b.recordedKubernetes()
	if err != nil || slices.Contains(all, version) {
		return err
	}
	text := strings.Join(append(all, version), "\n") + "\n"
	if err := os.WriteFile(filepath.Join(b.lab, kubernetesFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write which versions of Kubernetes the lab has: %w", err)
	}
	return nil
}

// kubernetesToRun makes sure of the programs of all versions that servers of a lab that starts may run: the configured
// one, and those that were configured before. What is needed of the latter and cannot be had now, it says: such a
// server waits for it.
func (b *builder) kubernetesToRun(ctx context.Context, bin string, say flow.Say) (sets []kubernetesSet, err error) {
	configured := b.sets.config.KubernetesVersion
	if configured != "" {
		if err := b.recordKubernetes(configured); err != nil {
			return nil, err
		}
	}
	versions, err := b.recordedKubernetes()
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		set, err := b.kubernetesFor(ctx, version, b.sets.has(bin), say)
		switch {
		case err != nil && (version == configured || ctx.Err() != nil):
			return nil, err
		case err != nil:
			say("servers of Kubernetes %s, which ran here before, do not start: %v", version, err)
		case set.needed():
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// NeedsKubernetes says whether servers of a version need programs that the lab, which is up, has not been given yet.
func (l *Lab) NeedsKubernetes(info Info, version string) bool {
	if len(info.KubernetesSets) == 0 || version == "" { // an older lab runs one version for all
		return false
	}
	runs, ok := info.runs(version)
	if ok && runs != version {
		from, err := os.ReadFile(filepath.Join(l.Dir, programsFile))
		return err == nil && string(from) == config.LabProgramsImages // which has every patch version
	}
	return !ok
}

// AddKubernetes makes sure that the lab, which is up, has programs for servers of a version.
func (l *Lab) AddKubernetes(ctx context.Context, version string, say flow.Say) error {
	info, err := l.Answering(ctx)
	if err != nil || !l.NeedsKubernetes(info, version) {
		return err
	}
	b, err := l.builder()
	if err != nil {
		return err
	}
	set, err := b.kubernetesFor(ctx, version, b.mode() == config.LabProgramsImages, say)
	if err != nil {
		return err
	}
	return l.give(ctx, b, set, say)
}

// give gives a set to the lab, which is up, and records it for the next start.
func (l *Lab) give(ctx context.Context, b *builder, set kubernetesSet, say flow.Say) error {
	if err := b.recordKubernetes(set.wanted); err != nil {
		return err
	}
	request := map[string]string{"for": set.wanted, "bin": set.bin}
	if err := l.Client.Send(ctx, http.MethodPut, "/v1/kubernetes", request, nil); err != nil {
		return err
	}
	if minorOf(set.wanted) != minorOf(set.version) {
		say("servers of Kubernetes %s run %s in this lab: its source has no %s", set.wanted, set.version,
			minorOf(set.wanted))
		return nil
	}
	say("the lab has Kubernetes %s for servers of %s", set.version, minorOf(set.wanted))
	return nil
}
