package dependencies

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Flux's own time-outs, where an object does not say.
const (
	// helmTimeout is spec.timeout of a HelmRelease (HelmRelease.GetTimeout in helm-controller's api/v2); the time-outs of
	// its operations are spec.timeout, unless they are given.
	helmTimeout = 5 * time.Minute
	// kustomizeMargin is what spec.timeout of a Kustomization is less than spec.interval, and kustomizeLeast the least
	// that it is (Kustomization.GetTimeout in kustomize-controller's api/v1).
	kustomizeMargin, kustomizeLeast = 30 * time.Second, 30 * time.Second
)

// Labels with which kustomize-controller marks what a Kustomization applied.
const (
	nameLabel      = "kustomize.toolkit.fluxcd.io/name"
	namespaceLabel = "kustomize.toolkit.fluxcd.io/namespace"
)

// bound is the time-out of an object, and where it is written.
type bound struct {
	value time.Duration
	from  string
	known bool
}

// bounds are the time-outs of the operations of a HelmRelease that hooks are part of.
func (o *Object) bounds() []bound {
	base := bound{helmTimeout, "Flux's default of spec.timeout", true}
	if o.timeout.is {
		base = bound{o.timeout.value, "spec.timeout", true}
	}
	base.known = o.timeout.unknown == ""
	all := []bound{base, base}
	for i, f := range []field{o.install, o.upgrade} {
		switch {
		case f.unknown != "":
			all[i].known = false
		case f.is:
			all[i] = bound{f.value, []string{"spec.install.timeout", "spec.upgrade.timeout"}[i], true}
		}
	}
	if all[0] == all[1] {
		return all[:1]
	}
	return all
}

// whole is the time-out of a Kustomization.
func (o *Object) whole() bound {
	switch {
	case o.timeout.is:
		// Flux takes no less.
		return bound{max(o.timeout.value, kustomizeLeast), "spec.timeout", true}
	case o.timeout.unknown != "" || !o.interval.is:
		return bound{}
	}
	return bound{max(o.interval.value-kustomizeMargin, kustomizeLeast),
		"Flux's default of spec.timeout: spec.interval less 30s", true}
}

// waits finds waits that exceed the wait that they are in: hooks in a HelmRelease, HelmReleases and Kustomizations in a
// Kustomization that waits for them.
func (r *Report) waits(t *Tree, all map[Key]*Object) {
	owner := r.owners(t, all)
	for i := range t.Objects {
		o := &t.Objects[i]
		if all[o.Key] != o {
			continue
		}
		inner := []bound{o.whole()}
		if o.Kind == HelmRelease {
			inner = o.bounds()
			r.hooks(o, inner)
		}
		outer := owner[o.Key]
		if outer == nil {
			if o.Kind == HelmRelease {
				r.unknown(o, "which Kustomization applies it, and whether that waits for it")
			}
			continue
		}
		if !outer.waitsFor(o) {
			continue
		}
		whole := outer.whole()
		if !whole.known {
			r.unknown(outer, "its time-out: neither spec.timeout nor spec.interval is a duration")
		}
		for _, b := range inner {
			switch {
			case !b.known:
				r.unknown(o, "a time-out that Flux fills in from variables")
			case whole.known && b.value > whole.value:
				r.find(LongerInside, o, "it may take %s (%s), and %s, which waits for it, ends after %s (%s)",
					text.Elapsed(b.value), b.from, outer.Key, text.Elapsed(whole.value), whole.from)
			}
		}
	}
}

func (r *Report) unknown(o *Object, says string) {
	if u := (Unknown{o.Key.String(), says}); !slices.Contains(r.Unknown, u) {
		r.Unknown = append(r.Unknown, u)
	}
}

// hooks compares what is known of a chart's hooks with the operations that they are part of.
func (r *Report) hooks(o *Object, bounds []bound) {
	if len(o.hooks) == 0 {
		r.unknown(o, "how long the hooks of its chart may take (the annotation "+HookAnnotation+" can say it)")
	}
	for _, h := range o.hooks {
		for _, b := range bounds {
			if b.known && h.takes > b.value {
				r.find(LongerInside, o, "a hook may take %s (%s), and Helm ends after %s (%s)", text.Elapsed(h.takes), h.from,
					text.Elapsed(b.value), b.from)
			}
		}
	}
}

// waitsFor reports whether a Kustomization waits for an object that it applies.
func (o *Object) waitsFor(inner *Object) bool {
	return o.waits || slices.ContainsFunc(o.checks, func(c reference) bool {
		group, _, _ := strings.Cut(c.APIVersion, "/")
		return c.Kind == inner.Kind && c.Name == inner.Name && c.Namespace == inner.Namespace &&
			(group == "" || strings.HasSuffix(group, ".toolkit.fluxcd.io"))
	})
}

// owners finds the Kustomization that applies each object: by its labels, by the Kustomization's spec.healthChecks, or
// by the folder of its file.
func (r *Report) owners(t *Tree, all map[Key]*Object) map[Key]*Object {
	found := map[Key]*Object{}
	folders := newFolders(t)
	for key, o := range all {
		if k := all[Key{Kustomization, o.labels[namespaceLabel], o.labels[nameLabel]}]; k != nil && k != o {
			found[key] = k
			continue
		}
		if k := folders.owner(o); k != nil {
			found[key] = k
		}
		for _, k := range folders.kustomizations {
			if k != o && len(k.checks) > 0 && !k.waits && k.waitsFor(o) {
				found[key] = k
			}
		}
	}
	for _, k := range folders.kustomizations {
		if folders.doubtful[k] {
			r.unknown(k, fmt.Sprintf("whether %s is this repository (its address among the files, and a remote of .git, "+
				"would say so): what it applies is left out", k.source()))
		}
	}
	return found
}

// folders knows which Kustomization applies a folder of this repository.
type folders struct {
	tree           *Tree
	kustomizations []*Object
	roots          map[string]string   // of repositories, by folder
	remotes        map[string][]string // by root
	doubtful       map[*Object]bool    // may be of another repository
}

func newFolders(t *Tree) *folders {
	f := &folders{t, nil, map[string]string{}, map[string][]string{}, map[*Object]bool{}}
	first := t.first()
	for i := range t.Objects {
		if o := &t.Objects[i]; o.Kind == Kustomization && first[o.Key] == o {
			f.kustomizations = append(f.kustomizations, o)
		}
	}
	return f
}

// owner is the Kustomization whose folder an object's file is in, the innermost one; nil: there is none.
func (f *folders) owner(o *Object) (owner *Object) {
	deepest := -1
	for _, k := range f.kustomizations {
		for _, file := range o.files {
			dir := filepath.Dir(file)
			if f.roots[dir] == "" {
				f.roots[dir] = repository(dir)
			}
			deep := within(file, k.path, f.roots[dir])
			if k == o || deep < 0 {
				continue
			}
			is, known := f.tree.reads(k, f.roots[dir], f.remotes)
			if !is && !known {
				f.doubtful[k] = true
			}
			if is && deep > deepest {
				owner, deepest = k, deep
			}
		}
	}
	return owner
}

// moved gives objects the namespace that the Kustomization that applies them puts them into.
func (t *Tree) moved() {
	f := newFolders(t)
	into := make([]string, len(t.Objects))
	for i := range t.Objects {
		if k := f.owner(&t.Objects[i]); k != nil {
			into[i] = k.target
		}
	}
	for i := range t.Objects {
		if o := &t.Objects[i]; into[i] != "" && into[i] != o.Namespace {
			m := o.manifest
			m.Metadata.Namespace = into[i]
			if moved, err := m.object(o.Kind, into[i]); err == nil {
				moved.Place, moved.files, moved.manifest = o.Place, o.files, m
				*o = moved
			}
		}
	}
}

// within is how many folders deep the folder is that a Kustomization applies, where a file is in it; below 0: it is
// not. spec.path begins at the root of the repository.
func within(file, path, root string) int {
	if path == "" { // all of its source, which may be another repository
		return -1
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return -1
	}
	in, err := filepath.Rel(filepath.Join(root, path), absolute)
	if err != nil || in == ".." || strings.HasPrefix(in, ".."+string(filepath.Separator)) {
		return -1
	}
	clean := filepath.Clean(path)
	if clean == "." {
		return 0
	}
	return 1 + strings.Count(clean, string(filepath.Separator))
}

// repository is the folder above a file's that has a .git; without one, the folder that the command runs in.
func repository(dir string) string {
	absolute, err := filepath.Abs(dir)
	for at := absolute; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return absolute
	}
	return here
}
