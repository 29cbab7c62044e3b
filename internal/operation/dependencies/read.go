package dependencies

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// largest is more than a file of manifests has; a larger one is a mistake.
const largest = 32 << 20

// Groups of the objects.
const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
)

// Read reads files, and the YAML files in folders and the folders below them; what a kustomization.yaml lists, as
// kustomize builds it. namespace is that of objects for which none is named. Every error is a usage.Error that names
// the place.
func Read(paths []string, namespace string) (*Tree, error) {
	t := &Tree{Source: strings.Join(paths, ", ")}
	if err := t.readAll(paths, namespace); err != nil {
		return nil, &usage.Error{Err: err}
	}
	t.moved()
	t.sorted()
	return t, nil
}

func (t *Tree) readAll(paths []string, namespace string) error {
	b := newBuilder(t)
	named, files := map[string]bool{}, map[string]bool{} // folders; files that are named themselves
	var all []string                                     // absolute
	for _, path := range paths {
		found, err := filesOf(path)
		if err != nil {
			return err
		}
		for _, file := range found {
			abs, err := absolute(file)
			if err != nil {
				return fmt.Errorf("read manifests: %w", err)
			}
			if b.shown[abs] == "" {
				b.shown[abs], all = file, append(all, abs)
			}
			if dir := filepath.Dir(abs); len(found) == 1 && file == filepath.Clean(path) &&
				!slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file)) {
				files[file] = true
			} else {
				named[dir] = true
			}
		}
	}
	for _, file := range all {
		if _, err := b.load(filepath.Dir(file)); err != nil {
			return err
		}
	}
	if err := b.buildAll(named, files, namespace); err != nil {
		return err
	}
	for _, file := range all {
		f, shown := b.folders[filepath.Dir(file)], b.show(file)
		switch {
		case f != nil && f.file == file:
			t.Ignored++
		case b.listed[file]:
		case f != nil && !files[shown]:
			if err := t.leaveOut(file, shown); err != nil {
				return err
			}
		default:
			data, err := readAll(file)
			if err != nil {
				return err
			}
			if err := t.read(data, shown, namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveOut says what is in a file that the kustomization.yaml beside it does not list: kustomize does not apply it.
func (t *Tree) leaveOut(file, shown string) error {
	data, err := readAll(file)
	if err != nil {
		return err
	}
	not := &Tree{}
	if err := not.read(data, shown, "default"); err != nil {
		return err
	}
	for _, o := range not.Objects {
		t.unknown(o.Place, "whether it is applied: the kustomization.yaml beside it does not list its file")
	}
	t.Ignored += not.Ignored
	return nil
}

// filesOf is a file itself, or the YAML files of a folder, without those that are hidden.
func filesOf(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	err = filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		switch hidden := strings.HasPrefix(e.Name(), ".") && file != path; {
		case err != nil:
			return err
		case hidden && e.IsDir():
			return fs.SkipDir
		case !hidden && !e.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)):
			files = append(files, filepath.Clean(file))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	return files, nil
}

func readAll(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if len(data) > largest {
		return nil, fmt.Errorf("read manifests: %s is larger than %d MB", file, largest>>20)
	}
	return data, nil
}

// read adds what the documents of a file have.
func (t *Tree) read(data []byte, file, namespace string) error {
	var bad error // has its place
	err := documents(data, func(node *yaml.Node) error {
		bad = t.add(node, origin{fmt.Sprintf("%s:%d", file, node.Line), []string{file}}, namespace)
		return bad
	})
	if err != nil && bad == nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return err
}

// origin is where an object is from.
type origin struct {
	place string   // file:line; empty: a cluster
	files []string // its own, and the kustomization.yaml that it is built by
}

func groupOf(node *yaml.Node) string {
	group, _, _ := strings.Cut(scalarOf(node, "apiVersion"), "/")
	return group
}

// ofFlux tells whether an object is one that is read.
func ofFlux(node *yaml.Node) bool {
	group := groupOf(node)
	return strings.HasSuffix(group, ".toolkit.fluxcd.io") || scalarOf(node, "kind") == "Job" && group == "batch"
}

// add adds an object.
func (t *Tree) add(node *yaml.Node, at origin, namespace string) error {
	group, kind := groupOf(node), scalarOf(node, "kind")
	switch {
	case kind == HelmRelease && group == helmGroup, kind == Kustomization && group == kustomizeGroup:
		m := manifest{}
		if err := node.Decode(&m); err != nil {
			return fmt.Errorf("%s: %s: %w", at.place, kind, placed(err))
		}
		o, err := m.object(kind, namespace)
		if err != nil {
			return fmt.Errorf("%s: %w", at.place, err)
		}
		o.Place, o.files, o.manifest = at.place, at.files, m
		t.Objects = append(t.Objects, o)
		return nil
	case group == sourceGroup:
		t.addSource(kind, node, namespace)
	case kind == "Job" && group == "batch":
		t.addJob(node)
	}
	t.Ignored++
	return nil
}

// addJob remembers a Job that is a hook of a Helm release. One that cannot be read is none.
func (t *Tree) addJob(node *yaml.Node) {
	var m manifest
	if err := node.Decode(&m); err != nil || m.Metadata.Annotations["helm.sh/hook"] == "" ||
		m.Spec.ActiveDeadlineSeconds <= 0 || m.Spec.ActiveDeadlineSeconds > int64(longest/time.Second) {
		return
	}
	release := m.Metadata.Annotations["meta.helm.sh/release-name"]
	if release == "" {
		release = m.Metadata.Labels["app.kubernetes.io/instance"]
	}
	t.jobs = append(t.jobs, job{m.Metadata.Namespace, m.Metadata.Name, release,
		time.Duration(m.Spec.ActiveDeadlineSeconds) * time.Second})
}

// child is the value of a key of a mapping; nil: there is none.
func child(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// scalarOf is the text of a key of a mapping; empty: there is none.
func scalarOf(node *yaml.Node, key string) string {
	if c := child(node, key); c != nil && c.Kind == yaml.ScalarNode {
		return c.Value
	}
	return ""
}

var yamlLine = regexp.MustCompile(`(?:yaml: )?(?:unmarshal errors:\s+)?line (\d+): `)

// placed writes an error of the YAML library in one line, with the line of the file in front.
func placed(err error) error {
	says := strings.Join(strings.Fields(err.Error()), " ")
	if found := yamlLine.FindStringSubmatchIndex(says); found != nil && found[0] == 0 {
		line, _ := strconv.Atoi(says[found[2]:found[3]])
		return fmt.Errorf("line %d: %s", line, says[found[1]:])
	}
	// The library names no line for a syntax error in the first one, nor for what is wrong with aliases.
	if rest, ok := strings.CutPrefix(says, "yaml: "); ok && !strings.Contains(says, "anchor") && !strings.Contains(says, "alias") {
		return errors.New("line 1: " + rest)
	}
	return errors.New(says)
}
