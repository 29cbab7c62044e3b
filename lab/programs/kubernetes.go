package programs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/blang/semver/v4"
)

// KubernetesFiles are the programs of Kubernetes in a set.
func KubernetesFiles() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// KubernetesSet is a folder with the programs of one version of Kubernetes.
type KubernetesSet struct {
	// For is the version that the command added the set for: servers of its minor run the set, also where the set is of
	// another one.
	For      string
	Bin      string
	Programs []Program // in the order of KubernetesFiles
}

// Version is that of the set's kube-apiserver.
func (s KubernetesSet) Version() string { return s.Programs[0].Version }

// StandsInFor says whether the set is of another minor than a version.
func (s KubernetesSet) StandsInFor(wanted string) bool { return !sameMinor(s.Version(), wanted) }

// Kubernetes are the sets of Kubernetes programs that a lab has. Sets can be added while it runs.
type Kubernetes struct {
	mu   sync.Mutex
	sets []KubernetesSet
}

// NewKubernetes returns sets of which the programs in bin are the first, for their own version.
func NewKubernetes(bin string) (*Kubernetes, error) {
	set, err := readKubernetes(bin)
	if err != nil {
		return nil, err
	}
	set.For = set.Version()
	return &Kubernetes{sets: []KubernetesSet{set}}, nil
}

func readKubernetes(bin string) (KubernetesSet, error) {
	all, err := Read(bin, KubernetesFiles()...)
	return KubernetesSet{Bin: bin, Programs: all}, err
}

// Add adds the programs in a folder for servers of a version. Programs of its minor that were added before stay, for
// servers that run them.
func (k *Kubernetes) Add(wanted, bin string) error {
	if _, err := semver.ParseTolerant(wanted); err != nil {
		return fmt.Errorf("add programs of Kubernetes: %w", err)
	}
	if !filepath.IsAbs(bin) {
		return fmt.Errorf("add programs of Kubernetes %s: %q is no absolute path", wanted, bin)
	}
	set, err := readKubernetes(bin)
	if err != nil {
		return fmt.Errorf("add programs of Kubernetes %s: %w", wanted, err)
	}
	set.For = wanted
	k.mu.Lock()
	defer k.mu.Unlock()
	same := func(s KubernetesSet) bool { return s.Bin == bin && sameMinor(s.For, wanted) }
	if !slices.ContainsFunc(k.sets, same) {
		k.sets = append(k.sets, set)
	}
	return nil
}

// List returns all sets, the first one first.
func (k *Kubernetes) List() []KubernetesSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sets)
}

// Choose returns the set that servers of a version run: one of exactly that version, else one of its minor, else one
// that was added for its minor. Of several the last one that was added counts.
func (k *Kubernetes) Choose(wanted string) (KubernetesSet, error) {
	if _, err := semver.ParseTolerant(wanted); err != nil {
		return KubernetesSet{}, fmt.Errorf("the lab knows no programs of Kubernetes %q: %w", wanted, err)
	}
	sets := k.List()
	slices.Reverse(sets)
	for _, fits := range []func(KubernetesSet) bool{
		func(s KubernetesSet) bool { return s.Version() == wanted },
		func(s KubernetesSet) bool { return sameMinor(s.Version(), wanted) },
		func(s KubernetesSet) bool { return sameMinor(s.For, wanted) },
	} {
		if i := slices.IndexFunc(sets, fits); i >= 0 {
			return sets[i], nil
		}
	}
	var has []string
	for _, s := range k.List() {
		if !slices.Contains(has, s.Version()) {
			has = append(has, s.Version())
		}
	}
	return KubernetesSet{}, fmt.Errorf("this lab has no programs of Kubernetes %s, only of %s; to add them: "+
		"go run ./cmd/bootstrap lab build KUBERNETES_VERSION=%s", wanted, strings.Join(has, " and "), wanted)
}

// sameMinor says whether two versions are of the same minor.
func sameMinor(a, b string) bool {
	va, errA := semver.ParseTolerant(a)
	vb, errB := semver.ParseTolerant(b)
	return errA == nil && errB == nil && va.Major == vb.Major && va.Minor == vb.Minor
}
