package dependencies

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// DefaultFile is where the expected list is looked for.
const DefaultFile = "deps.yaml"

// sections are the kinds as the expected list has them, in its order.
var sections = []struct{ key, kind string }{{"helmReleases", HelmRelease}, {"kustomizations", Kustomization}}

// Expected is a list of objects with what each is to depend on.
type Expected struct {
	DependsOn map[Key][]Key
	lines     map[Key]int
	comments  []byte // at the top of the file
}

const head = "# What Flux's objects are expected to depend on: `bootstrap deps audit` compares it with what they do.\n"

// ReadExpected reads a list. Every error is a usage.Error that names the place.
func ReadExpected(file string) (*Expected, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage.Errorf("there is no expected list %s: --write writes it from what is, --expected names another: %w",
			file, err)
	}
	if err != nil {
		return nil, usage.Errorf("read the expected list: %w", err)
	}
	e, err := parseExpected(data)
	if err != nil {
		return nil, usage.Errorf("%s:%w", file, err)
	}
	return e, nil
}

// WriteExpected writes the list that a tree agrees with. A file that is there, and is no list, is not overwritten.
func WriteExpected(tree *Tree, file string) (report Report, err error) {
	var older *Expected
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		if older, err = ReadExpected(file); err != nil {
			return report, err
		}
	}
	list := ListOf(tree, older)
	if err := list.Write(file); err != nil {
		return report, err
	}
	report = Audit(tree, list, filepath.Clean(file))
	report.Written = true
	return report, nil
}

// parseExpected reads a list. An error begins with the line.
func parseExpected(data []byte) (*Expected, error) {
	e := &Expected{DependsOn: map[Key][]Key{}, lines: map[Key]int{}, comments: topComments(data)}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0 {
		return e, nil
	} else if err != nil {
		return nil, fmt.Errorf(" %w", placed(err))
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New(" there is a second document, or what is no YAML: the list is one document")
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return e, nil
	}
	err := entries(root, "the list", func(key string, at, value *yaml.Node) error {
		i := slices.IndexFunc(sections, func(s struct{ key, kind string }) bool { return s.key == key })
		if i < 0 {
			return fmt.Errorf("%d: %q is neither helmReleases nor kustomizations", at.Line, key)
		}
		if value.Kind == yaml.ScalarNode && value.Tag == "!!null" {
			return nil
		}
		return entries(value, key, func(name string, at, value *yaml.Node) error {
			return e.add(sections[i].kind, name, at, value)
		})
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// entries visits the keys of a mapping, each of which may be there once.
func entries(node *yaml.Node, what string, visit func(key string, at, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%d: %s is no mapping of names", node.Line, what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		at, value := node.Content[i], node.Content[i+1]
		if at.Kind != yaml.ScalarNode {
			return fmt.Errorf("%d: a key of %s is no name", at.Line, what)
		}
		if line := seen[at.Value]; line > 0 {
			return fmt.Errorf("%d: %s is in %s twice, first in line %d", at.Line, at.Value, what, line)
		}
		seen[at.Value] = at.Line
		if err := visit(at.Value, at, value); err != nil {
			return err
		}
	}
	return nil
}

// add adds an object with its dependencies: nothing, a name, or a list of names.
func (e *Expected) add(kind, name string, at, value *yaml.Node) error {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok || checkName("", namespace) != nil || checkName("", name) != nil {
		return fmt.Errorf("%d: %q is no namespace/name", at.Line, at.Value)
	}
	key := Key{kind, namespace, name}
	e.DependsOn[key], e.lines[key] = nil, at.Line
	names := []*yaml.Node{value}
	switch {
	case value.Kind == yaml.SequenceNode:
		names = value.Content
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		return nil
	}
	for _, n := range names {
		on := Key{Kind: kind, Namespace: key.Namespace, Name: n.Value}
		if namespace, name, ok := strings.Cut(n.Value, "/"); ok {
			on.Namespace, on.Name = namespace, name
		}
		if n.Kind != yaml.ScalarNode || checkName("", on.Namespace) != nil || checkName("", on.Name) != nil {
			return fmt.Errorf("%d: a dependency of %s is no name and no namespace/name", n.Line, key)
		}
		if slices.Contains(e.DependsOn[key], on) {
			return fmt.Errorf("%d: %s has the dependency %s twice", n.Line, key, n.Value)
		}
		e.DependsOn[key] = append(e.DependsOn[key], on)
	}
	return nil
}

// topComments are the comments and empty lines before the first line of content.
func topComments(data []byte) []byte {
	end := 0
	for line := range bytes.Lines(data) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			break
		}
		end += len(line)
	}
	if end == len(data) && end > 0 && data[end-1] != '\n' {
		return append(bytes.Clone(data), '\n')
	}
	return data[:end]
}

// ListOf is the expected list that a tree agrees with. It keeps the comments at the top of an older one, nil: there is
// none.
func ListOf(t *Tree, older *Expected) *Expected {
	e := &Expected{DependsOn: map[Key][]Key{}, comments: []byte(head)}
	if older != nil {
		e.comments = older.comments
	}
	for key, o := range t.first() {
		on := slices.Clone(o.DependsOn)
		slices.SortFunc(on, compareKeys)
		e.DependsOn[key] = slices.Compact(on)
	}
	return e
}

// String is the list as a file: sorted, one object a line where it fits.
func (e *Expected) String() string {
	var b strings.Builder
	b.Write(e.comments)
	for _, s := range sections {
		var keys []Key
		for key := range e.DependsOn {
			if key.Kind == s.kind {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			continue
		}
		slices.SortFunc(keys, compareKeys)
		fmt.Fprintf(&b, "%s:\n", s.key)
		for _, key := range keys {
			b.WriteString(line(key, e.DependsOn[key]))
		}
	}
	return b.String()
}

// line is an object of the list, on several lines where its dependencies do not fit on one.
func line(key Key, on []Key) string {
	var names []string
	for _, d := range on {
		name := d.Name
		if d.Namespace != key.Namespace {
			name = d.Namespace + "/" + d.Name
		}
		names = append(names, scalar(name))
	}
	begin := "  " + scalar(key.Namespace+"/"+key.Name) + ":"
	if short := begin + " [" + strings.Join(names, ", ") + "]"; len(short) <= 100 {
		return short + "\n"
	}
	return begin + "\n    - " + strings.Join(names, "\n    - ") + "\n"
}

// scalar writes a name as YAML reads it back: quoted where it is, or may be, anything else than a plain text.
func scalar(name string) string {
	plain := !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '/'
	})
	var value any
	if plain && yaml.Unmarshal([]byte(name), &value) == nil && value == name && name[0] != '-' {
		return name
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// Write writes the list into a file, whole or not at all.
func (e *Expected) Write(file string) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".deps-*.yaml")
	if err != nil {
		return fmt.Errorf("write the expected list: %w", err)
	}
	defer os.Remove(temporary.Name()) // it is there no longer where all went well
	_, err = temporary.WriteString(e.String())
	err = cmp.Or(err, temporary.Chmod(mode), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write the expected list %s: %w", file, err)
	}
	return nil
}
