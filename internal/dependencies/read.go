package dependencies

import (
	"bytes"
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

	"github.com/slipway-k8s/slipway/internal/usage"
)

// largest is more than a file of manifests has; a larger one is a mistake.
const largest = 32 << 20

// Read reads files, and the YAML files in folders and the folders below them. namespace is that of objects whose file
// names none. Every error is a usage.Error that names the place.
func Read(paths []string, namespace string) (*Tree, error) {
	t := &Tree{Source: strings.Join(paths, ", ")}
	seen := map[string]bool{}
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, &usage.Error{Err: err}
		}
		for _, file := range files {
			if seen[file] {
				continue
			}
			seen[file] = true
			if err := t.readFile(file, namespace); err != nil {
				return nil, &usage.Error{Err: err}
			}
		}
	}
	t.sorted()
	return t, nil
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

func (t *Tree) readFile(file, namespace string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if len(data) > largest {
		return fmt.Errorf("read manifests: %s is larger than %d MB", file, largest>>20)
	}
	return t.read(data, file, namespace)
}

// read adds what the documents of a file have.
func (t *Tree) read(data []byte, file, namespace string) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, placed(err))
		}
		if len(document.Content) == 0 {
			continue
		}
		if err := t.add(document.Content[0], file, namespace); err != nil {
			return err
		}
	}
}

// add adds the object of a document, or those of a List.
func (t *Tree) add(node *yaml.Node, file, namespace string) error {
	place := fmt.Sprintf("%s:%d", file, node.Line)
	group, _, _ := strings.Cut(scalarOf(node, "apiVersion"), "/")
	kind := scalarOf(node, "kind")
	switch {
	case kind == "List" && group == "v1":
		items := child(node, "items")
		if items == nil || items.Kind != yaml.SequenceNode {
			return nil
		}
		for _, item := range items.Content {
			if err := t.add(item, file, namespace); err != nil {
				return err
			}
		}
		return nil
	case kind == HelmRelease && group == "helm.toolkit.fluxcd.io",
		kind == Kustomization && group == "kustomize.toolkit.fluxcd.io":
		m := manifest{}
		if err := node.Decode(&m); err != nil {
			return fmt.Errorf("%s: %s: %w", place, kind, placed(err))
		}
		o, err := m.object(kind, namespace)
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		if o.Place = place; file == "" {
			o.Place = ""
		}
		o.file = file
		t.Objects = append(t.Objects, o)
		return nil
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
