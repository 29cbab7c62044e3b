package programs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blang/semver/v4"
)

// Kind is what a lab can have several versions of: a set of programs for each.
type Kind struct {
	Name     string // for people
	Files    []string
	Variable string // that configures the version
}

// Kubernetes are the programs of a control plane, which servers and management clusters choose by their versions.
func Kubernetes() Kind {
	return Kind{Name: "Kubernetes", Files: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"},
		Variable: "KUBERNETES_VERSION"}
}

// Core is the manager of Cluster API's core, which Pods choose by the tag of its image.
func Core() Kind {
	return Kind{Name: "Cluster API", Files: []string{"cluster-api"}, Variable: "CAPI_VERSION"}
}

// Set is a folder with the programs of one version.
type Set struct {
	// For is the version that the command added the set for: those who ask for its minor get the set, also where the set
	// is of another one.
	For      string
	Bin      string
	Programs []Program // in the order of the kind's files
}

// Version is that of the set's first program.
func (s Set) Version() string { return s.Programs[0].Version }

// StandsInFor says whether the set is of another minor than a version.
func (s Set) StandsInFor(wanted string) bool { return !sameMinor(s.Version(), wanted) }

// Given is what the command gives a daemon: a folder of programs, for those who ask for a version's minor.
type Given struct {
	For string `json:"for"` // "v1.33.13"
	Bin string `json:"bin"`
}

// Sets are the sets of a kind that a lab has. Some can be added while it runs.
type Sets struct {
	kind Kind
	mu   sync.Mutex
	sets []Set
}

// NewSets returns no sets of a kind yet.
func NewSets(kind Kind) *Sets { return &Sets{kind: kind} }

// Kind is what the sets are of.
func (s *Sets) Kind() Kind { return s.kind }

// AddOwn adds the programs in a folder for their own version.
func (s *Sets) AddOwn(bin string) error {
	all, err := Read(bin, s.kind.Files...)
	if err != nil {
		return err
	}
	return s.Add(all[0].Version, bin)
}

// AddAll adds what was given or, where nothing was, the programs in a folder for their own version. hold keeps each
// folder from being removed.
func (s *Sets) AddAll(given []Given, own string, hold func(dir string) error) error {
	if len(given) == 0 {
		return s.AddOwn(own)
	}
	for _, g := range given {
		if err := hold(g.Bin); err != nil {
			return err
		}
		if err := s.Add(g.For, g.Bin); err != nil {
			return err
		}
	}
	return nil
}

// Add adds the programs in a folder for those who ask for a version. Programs of its minor that were added before stay,
// for those who run them.
func (s *Sets) Add(wanted, bin string) error {
	fail := func(err error) error { return fmt.Errorf("add programs of %s %s: %w", s.kind.Name, wanted, err) }
	if _, err := semver.ParseTolerant(wanted); err != nil {
		return fail(err)
	}
	if !filepath.IsAbs(bin) {
		return fail(fmt.Errorf("%q is no absolute path", bin))
	}
	all, err := Read(bin, s.kind.Files...)
	if err != nil {
		return fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o Set) bool { return o.Bin == bin && sameMinor(o.For, wanted) }
	if !slices.ContainsFunc(s.sets, same) {
		s.sets = append(s.sets, Set{For: wanted, Bin: bin, Programs: all})
	}
	return nil
}

// List returns all sets, the first one first.
func (s *Sets) List() []Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sets)
}

// Description says in a control API which version runs for a version's minor.
type Description struct {
	For  string `json:"for"`
	Runs string `json:"runs"`
}

// Describe describes all sets.
func (s *Sets) Describe() (all []Description) {
	for _, o := range s.List() {
		all = append(all, Description{For: o.For, Runs: o.Version()})
	}
	return all
}

// Choose returns the set for a version: one of exactly that version, else one of its minor, else one that was added for
// its minor. Of several the last one that was added counts.
func (s *Sets) Choose(wanted string) (Set, error) {
	if _, err := semver.ParseTolerant(wanted); err != nil {
		return Set{}, fmt.Errorf("the lab knows no programs of %s %q: %w", s.kind.Name, wanted, err)
	}
	sets := s.List()
	slices.Reverse(sets)
	for _, fits := range []func(Set) bool{
		func(o Set) bool { return o.Version() == wanted },
		func(o Set) bool { return sameMinor(o.Version(), wanted) },
		func(o Set) bool { return sameMinor(o.For, wanted) },
	} {
		if i := slices.IndexFunc(sets, fits); i >= 0 {
			return sets[i], nil
		}
	}
	var has []string
	for _, o := range s.List() {
		if !slices.Contains(has, o.Version()) {
			has = append(has, o.Version())
		}
	}
	return Set{}, fmt.Errorf("this lab has no programs of %s %s, only of %s; to add them: go run ./cmd/bootstrap lab build "+
		"%s=%s", s.kind.Name, wanted, strings.Join(has, " and "), s.kind.Variable, wanted)
}

// sameMinor says whether two versions are of the same minor.
func sameMinor(a, b string) bool {
	va, errA := semver.ParseTolerant(a)
	vb, errB := semver.ParseTolerant(b)
	return errA == nil && errB == nil && va.Major == vb.Major && va.Minor == vb.Minor
}
