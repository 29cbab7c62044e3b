// Package dependencies compares the dependencies of Flux's HelmReleases and Kustomizations with those that are
// expected.
package dependencies

import (
	"cmp"
	"slices"
	"time"
)

// Kinds of objects that depend on others of their kind.
const (
	HelmRelease   = "HelmRelease"
	Kustomization = "Kustomization"
)

// Key names an object, or one that another depends on: Flux looks for a dependency among the objects of the same kind.
type Key struct{ Kind, Namespace, Name string }

// String is "HelmRelease apps/shop".
func (k Key) String() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Object is a HelmRelease or a Kustomization.
type Object struct {
	Key
	Place     string // file:line; empty: it is of a cluster
	DependsOn []Key  // in their order

	files       []string // its own, and the kustomization.yaml that it is built by; none: it is of a cluster
	manifest    manifest
	labels      map[string]string
	annotations map[string]string

	timeout  field // spec.timeout
	install  field // of a HelmRelease: spec.install.timeout
	upgrade  field // of a HelmRelease: spec.upgrade.timeout
	interval field
	hooks    []hook      // of a HelmRelease: what is known of its chart's hooks
	release  [2]string   // of a HelmRelease: namespace and name of the Helm release
	path     string      // of a Kustomization: spec.path
	from     reference   // of a Kustomization: spec.sourceRef
	target   string      // of a Kustomization: spec.targetNamespace
	waits    bool        // of a Kustomization: spec.wait
	checks   []reference // of a Kustomization: spec.healthChecks
}

// reference names any object.
type reference struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Namespace  string `yaml:"namespace"`
	Name       string `yaml:"name"`
}

// field is a duration of an object.
type field struct {
	value   time.Duration
	is      bool   // it is there and known
	unknown string // what is written there where it is no duration before Flux substitutes variables
}

// hook is how long a hook of a chart may take.
type hook struct {
	from  string // where it is written
	takes time.Duration
}

// Tree is what files, or a cluster, have of Flux's objects.
type Tree struct {
	Source  string // for people
	Objects []Object
	Ignored int // documents of other kinds

	jobs    []job
	sources map[Key]string // the addresses of Flux's sources
	notes   []Unknown      // what is not read
}

func (t *Tree) unknown(object, says string) { t.notes = append(t.notes, Unknown{object, says}) }

// job is a Job that is a hook of a Helm release.
type job struct {
	namespace, name, release string
	takes                    time.Duration
}

// Edges counts the dependencies.
func (t *Tree) Edges() (n int) {
	for _, o := range t.Objects {
		n += len(o.DependsOn)
	}
	return n
}

// sorted orders the objects, and gives HelmReleases the hooks that are Jobs.
func (t *Tree) sorted() {
	slices.SortStableFunc(t.Objects, func(a, b Object) int { return compareKeys(a.Key, b.Key) })
	for i := range t.Objects {
		o := &t.Objects[i]
		for _, j := range t.jobs {
			if o.Kind == HelmRelease && o.release == [2]string{j.namespace, j.release} {
				o.hooks = append(o.hooks, hook{"activeDeadlineSeconds of its hook Job " + j.namespace + "/" + j.name, j.takes})
			}
		}
	}
}

// first has the first object of each name.
func (t *Tree) first() map[Key]*Object {
	all := map[Key]*Object{}
	for i := range t.Objects {
		if o := &t.Objects[i]; all[o.Key] == nil {
			all[o.Key] = o
		}
	}
	return all
}
