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

// programSet is a folder with the programs of a kind, for those who run a minor version of it.
type programSet struct {
	kind    Kind
	wanted  string // a version of that minor
	version string // of the programs
	bin     string
	own     bool // a set besides the lab's first one
}

// minorOf is the minor version: "v1.33"; empty: text is no version.
func minorOf(text string) string {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d", v.Major, v.Minor)
}

// moduleOf is the folder of the module in the lab's source that names the programs of a version: that of its minor,
// else of the next newer minor that the source has, else of its newest one. version is that of the programs.
func (b *builder) moduleOf(k Kind, wanted string) (module, version string, err error) {
	own, err := requiredIn(b.source)
	if err != nil {
		return "", "", err
	}
	module, version = b.source, own[k.module]
	if minorOf(version) == "" {
		return "", "", fmt.Errorf("find the version of %s in %s: %q is not a version", k.Name, b.source, version)
	}
	is, err := semver.ParseTolerant(minorOf(wanted))
	if err != nil {
		return module, version, nil // none is configured
	}
	others, err := filepath.Glob(filepath.Join(b.source, k.folder, "*", "go.mod"))
	if err != nil {
		return "", "", err
	}
	better := func(a, than semver.Version) bool {
		if a.GTE(is) != than.GTE(is) {
			return a.GTE(is)
		}
		return a.LT(than) == a.GTE(is)
	}
	for _, other := range others {
		required, err := requiredIn(filepath.Dir(other))
		if err != nil {
			return "", "", err
		}
		a, errA := semver.ParseTolerant(minorOf(required[k.module]))
		than, errB := semver.ParseTolerant(minorOf(version))
		if err := errors.Join(errA, errB); err != nil {
			return "", "", fmt.Errorf("find the version of %s in %s: %w", k.Name, other, err)
		}
		if !a.Equals(than) && better(a, than) {
			module, version = filepath.Dir(other), required[k.module]
		}
	}
	return module, version, nil
}

// ownTools are the programs of the lab's own module that a configuration runs: those that only some versions take are
// left out for another one.
func (b *builder) ownTools() (toolset, error) {
	t := toolset{module: b.source}
	left := 0
	packages := slices.Clone(commonTools())
	for _, k := range kinds() {
		module, _, err := b.moduleOf(k, k.configured(b.sets.config))
		if err != nil {
			return t, err
		}
		if module == b.source {
			packages = append(packages, k.packages...)
		} else {
			left++
		}
	}
	if left > 0 {
		t.packages = packages
	}
	return t, nil
}

// toolsFor finds the programs from source for a version, and completes the set but for building it.
func (b *builder) toolsFor(ctx context.Context, set *programSet) (t toolset, err error) {
	module, version, err := b.moduleOf(set.kind, set.wanted)
	if err != nil {
		return t, err
	}
	set.version, set.own = version, true
	t = toolset{module: module}
	if module == b.source {
		own, err := b.ownTools()
		if err != nil {
			return t, err
		}
		if set.own = own.packages != nil && !slices.Contains(own.packages, set.kind.packages[0]); set.own {
			t.packages = set.kind.packages
		} else {
			t = own
		}
	}
	set.bin, _, err = b.bin(ctx, t)
	return t, err
}

// setFor makes sure that there are programs for a version: exactly those where they come out of images, those of the
// source otherwise, see moduleOf.
func (b *builder) setFor(ctx context.Context, k Kind, wanted string, fromImages bool,
	say flow.Say) (programSet, error) {
	set := programSet{kind: k, wanted: wanted, version: wanted}
	if fromImages {
		if wanted == k.configured(b.sets.config) {
			set.bin = b.sets.bin()
			return set, nil
		}
		var err error
		set.own = true
		set.bin, err = b.sets.of(k, wanted).fetch(ctx, say)
		return set, err
	}
	tools, err := b.toolsFor(ctx, &set)
	if err != nil || !set.own {
		return set, err
	}
	set.bin, err = b.compileTools(ctx, tools, k.Name+" "+set.version, recipe{}, say)
	return set, err
}

// setsBuilt is nil if the programs of the configured versions are there, besides the set in bin.
func (b *builder) setsBuilt(ctx context.Context, bin string) error {
	if b.sets.has(bin) {
		return nil
	}
	var missing []error
	for _, k := range kinds() {
		set := programSet{kind: k, wanted: k.configured(b.sets.config)}
		if set.wanted == "" {
			continue
		}
		if _, err := b.toolsFor(ctx, &set); err != nil {
			return err
		}
		if !Exists(set.bin) {
			missing = append(missing, fmt.Errorf("the programs of %s %s are not built: %s", k.Name, set.version,
				platform.ShellCommand("lab", "build", k.variable+"="+set.wanted)))
		}
	}
	return errors.Join(missing...)
}

// recorded are the versions of a kind that the lab may run, from a file in its folder with one a line.
func (b *builder) recorded(k Kind) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(b.lab, k.folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which versions of %s the lab has: %w", k.Name, err)
	}
	return strings.Fields(string(data)), nil
}

// record adds a version to those that the lab may run.
func (b *builder) record(k Kind, version string) error {
	all, err := b.recorded(k)
	if err != nil || slices.Contains(all, version) {
		return err
	}
	text := strings.Join(append(all, version), "\n") + "\n"
	if err := os.WriteFile(filepath.Join(b.lab, k.folder), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write which versions of %s the lab has: %w", k.Name, err)
	}
	return nil
}

// setsToRun makes sure of the programs of all versions that a lab that starts may run, the configured one first, then
// those that were configured before. What cannot be had now of the latter, it says: who needs it waits for it.
func (b *builder) setsToRun(ctx context.Context, k Kind, bin string, say flow.Say) (sets []programSet, err error) {
	configured := k.configured(b.sets.config)
	if configured == "" { // as in a test: that of the source
		if _, configured, err = b.moduleOf(k, ""); err != nil {
			return nil, err
		}
	}
	if err := b.record(k, configured); err != nil {
		return nil, err
	}
	versions, err := b.recorded(k)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(versions, func(x, y string) int { // the configured one first
		return strings.Compare(fmt.Sprint(x != configured), fmt.Sprint(y != configured))
	})
	for _, version := range versions {
		set, err := b.setFor(ctx, k, version, b.sets.has(bin), say)
		same := func(o programSet) bool { return o.bin == set.bin && minorOf(o.wanted) == minorOf(set.wanted) }
		switch {
		case err != nil && (version == configured || ctx.Err() != nil):
			return nil, err
		case err != nil:
			say("%s %s, which ran here before, do not start: %v", k.runners, version, err)
		case !slices.ContainsFunc(sets, same):
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// allSetsToRun are the sets of all kinds.
func (b *builder) allSetsToRun(ctx context.Context, bin string, say flow.Say) (all []programSet, err error) {
	for _, k := range kinds() {
		sets, err := b.setsToRun(ctx, k, bin, say)
		if err != nil {
			return nil, err
		}
		all = append(all, sets...)
	}
	return all, nil
}

// setArguments are the daemon's arguments for sets.
func setArguments(sets []programSet) (args []string) {
	for _, set := range sets {
		args = append(args, set.kind.flag, set.wanted+"="+set.bin)
	}
	return args
}

// Needs says whether a version takes programs that the lab, which is up, has not been given yet.
func (l *Lab) Needs(info Info, k Kind, version string) bool {
	if len(k.in(info)) == 0 || version == "" { // an older lab runs one version for all
		return false
	}
	runs, ok := runs(k.in(info), version)
	if ok && runs != version {
		from, err := os.ReadFile(filepath.Join(l.Dir, programsFile))
		return err == nil && string(from) == config.LabProgramsImages // which has every patch version
	}
	return !ok
}

// Add makes sure that the lab, which is up, has programs for a version, and returns its info afterwards.
func (l *Lab) Add(ctx context.Context, k Kind, version string, say flow.Say) (Info, error) {
	info, err := l.Answering(ctx)
	if err != nil || !l.Needs(info, k, version) {
		return info, err
	}
	b, err := l.builder()
	if err != nil {
		return info, err
	}
	set, err := b.setFor(ctx, k, version, b.mode() == config.LabProgramsImages, say)
	if err != nil {
		return info, err
	}
	return info, b.give(ctx, l.Client, set, &info, say)
}

// give gives a set to a daemon that is up, and records it for the next start.
func (b *builder) give(ctx context.Context, client *Client, set programSet, info any, say flow.Say) error {
	k := set.kind
	if err := b.record(k, set.wanted); err != nil {
		return err
	}
	request := map[string]string{"for": set.wanted, "bin": set.bin}
	if err := client.Send(ctx, http.MethodPut, k.route, request, info); err != nil {
		return err
	}
	if minorOf(set.wanted) != minorOf(set.version) {
		say("%s %s run %s in this lab: its source has no %s", k.runners, set.wanted, set.version, minorOf(set.wanted))
		return nil
	}
	say("the lab has %s %s for %s", k.Name, set.version, minorOf(set.wanted))
	return nil
}
