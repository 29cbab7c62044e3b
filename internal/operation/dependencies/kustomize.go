package dependencies

//lint:file-ignore SA1019 repositories have the deprecated fields, and kustomize builds them

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	k8syaml "sigs.k8s.io/yaml"
)

// placeAnnotation carries file:line of an object through kustomize.
const placeAnnotation = "internal.slipway.dev/place"

// folder is one with a kustomization.yaml.
type folder struct {
	file      string // its kustomization.yaml, in its absolute path
	reduced   []byte // what kustomize gets of it
	component bool   // it is only a part of others
	used      bool   // another one builds on it
	built     bool
}

// builder builds folders with kustomize's library. That reads its files here: of a kustomization.yaml only what changes
// Flux's objects, and of manifests only these. So it reaches no network, and needs no file that only other objects
// need.
type builder struct {
	filesys.FileSystem
	tree    *Tree
	folders map[string]*folder // by their absolute path; nil: without a kustomization.yaml
	listed  map[string]bool    // files that a kustomization.yaml names, by their absolute path
	counted map[string]bool    // manifests whose other documents are in Tree.Ignored
	shown   map[string]string  // absolute paths as they were named
}

func newBuilder(t *Tree) *builder {
	return &builder{filesys.MakeFsOnDisk(), t, map[string]*folder{}, map[string]bool{}, map[string]bool{},
		map[string]string{}}
}

// absolute is the path of a file as kustomize asks for it: without links in its folders.
func absolute(file string) (string, error) {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return filepath.Join(dir, filepath.Base(file)), err
}

// show is a path for people.
func (b *builder) show(file string) string {
	if shown := b.shown[file]; shown != "" {
		return shown
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, file); err == nil {
			return rel
		}
	}
	return file
}

// load reads the kustomization.yaml of a folder, and those of the folders that it builds on.
func (b *builder) load(dir string) (*folder, error) {
	if f, known := b.folders[dir]; known {
		return f, nil
	}
	b.folders[dir] = nil
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := filepath.Join(dir, name)
		data, err := readAll(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var node yaml.Node
		if err := yaml.Unmarshal(data, &node); err != nil {
			return nil, fmt.Errorf("%s: %w", b.show(file), placed(err))
		}
		if len(node.Content) == 0 || groupOf(node.Content[0]) == kustomizeGroup {
			continue // an object of Flux that has the name of such a file
		}
		var k types.Kustomization
		if err := k8syaml.Unmarshal(data, &k); err != nil {
			return nil, fmt.Errorf("%s: %w", b.show(file), placed(err))
		}
		k.FixKustomization()
		b.folders[dir] = &folder{file: file, component: k.Kind == types.ComponentKind}
		b.list(dir, node.Content[0])
		if b.folders[dir].reduced, err = b.reduce(dir, k); err != nil {
			return nil, fmt.Errorf("%s: %w", b.show(file), err)
		}
		break
	}
	return b.folders[dir], nil
}

// list remembers the files that a kustomization.yaml names, in whichever field: as PATH, or as KEY=PATH.
func (b *builder) list(dir string, node *yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		_, value, _ := strings.Cut(node.Value, "=")
		for _, name := range []string{node.Value, value} {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); name != "" && err == nil && info.Mode().IsRegular() {
				b.listed[file] = true
			}
		}
	}
	for _, child := range node.Content {
		b.list(dir, child)
	}
}

// remote matches what kustomize would clone or download.
var remote = regexp.MustCompile(`://|::|^git@|^github\.com[/:]|\?ref=`)

// reduce is what of a kustomization.yaml changes Flux's objects, and can be read here.
func (b *builder) reduce(dir string, k types.Kustomization) ([]byte, error) {
	r := types.Kustomization{TypeMeta: k.TypeMeta, MetaData: &types.ObjectMeta{Name: "reduced"}, NamePrefix: k.NamePrefix,
		NameSuffix: k.NameSuffix, Namespace: k.Namespace, Labels: k.Labels, CommonAnnotations: k.CommonAnnotations}
	if len(k.CommonLabels) > 0 {
		r.Labels = append(r.Labels, types.Label{Pairs: k.CommonLabels})
	}
	var err error
	if r.Resources, err = b.local(dir, k.Resources); err == nil {
		r.Components, err = b.local(dir, k.Components)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range k.PatchesStrategicMerge {
		patch := types.Patch{Patch: string(p)}
		if b.Exists(filepath.Join(dir, string(p))) {
			patch = types.Patch{Path: string(p)}
		}
		k.Patches = append(k.Patches, patch)
	}
	for _, p := range append(k.Patches, k.PatchesJson6902...) {
		patches, err := b.patches(dir, p)
		if err != nil {
			return nil, err
		}
		r.Patches = append(r.Patches, patches...)
	}
	if len(k.Replacements)+len(k.Transformers)+len(k.Generators)+len(k.HelmCharts) > 0 {
		b.tree.unknown(b.show(b.folders[dir].file), "what its replacements, transformers, generators and helmCharts change")
	}
	return k8syaml.Marshal(r)
}

// local are the entries that are files and folders; the others are left out, and said.
func (b *builder) local(dir string, entries []string) (local []string, err error) {
	for _, entry := range entries {
		path := filepath.Join(dir, entry)
		info, err := os.Stat(path)
		switch {
		case err != nil && remote.MatchString(entry):
			b.tree.unknown(b.show(b.folders[dir].file), "what "+entry+" has, which it builds on: it is not downloaded")
			continue
		case err != nil:
			return nil, fmt.Errorf("it lists %s: %w", entry, err)
		case info.IsDir():
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return nil, err
			}
			base, err := b.load(path)
			if err != nil {
				return nil, err
			}
			if base == nil {
				return nil, fmt.Errorf("it lists the folder %s, which has no kustomization.yaml", entry)
			}
			base.used = true
		}
		local = append(local, "./"+filepath.ToSlash(filepath.Clean(entry)))
	}
	return local, nil
}

// patches are those of a patch that change Flux's objects. Each has a target, so that one without an object, such as
// of a base that is not read, is no error.
func (b *builder) patches(dir string, p types.Patch) (all []types.Patch, err error) {
	if p.Path != "" {
		if remote.MatchString(p.Path) {
			b.tree.unknown(b.show(b.folders[dir].file), "what the patch "+p.Path+" changes: it is not downloaded")
			return nil, nil
		}
		data, err := readAll(filepath.Join(dir, p.Path))
		if err != nil {
			return nil, err
		}
		p.Patch, p.Path = string(data), ""
	}
	if p.Target != nil {
		kind, err := regexp.Compile("^(?:" + p.Target.Kind + ")$")
		if err == nil && p.Target.Kind != "" && !kind.MatchString(HelmRelease) && !kind.MatchString(Kustomization) {
			return nil, nil
		}
		return []types.Patch{p}, nil
	}
	err = documents([]byte(p.Patch), func(node *yaml.Node) error {
		if !ofFlux(node) {
			return nil
		}
		patch, err := yaml.Marshal(node)
		var m manifest
		if err == nil {
			err = node.Decode(&m)
		}
		group, version, _ := strings.Cut(scalarOf(node, "apiVersion"), "/")
		all = append(all, types.Patch{Patch: string(patch), Options: p.Options, Target: &types.Selector{ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: regexp.QuoteMeta(group), Version: version, Kind: scalarOf(node, "kind")},
			Name: regexp.QuoteMeta(m.Metadata.Name), Namespace: regexp.QuoteMeta(m.Metadata.Namespace)}}})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("a patch: %w", err)
	}
	return all, nil
}

// ReadFile is what kustomize gets of a file.
func (b *builder) ReadFile(path string) ([]byte, error) {
	if f := b.folders[filepath.Dir(path)]; f != nil && f.file == path {
		f.built = true
		return f.reduced, nil
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)) && !b.listed[path] {
		return nil, os.ErrNotExist
	}
	data, err := readAll(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = documents(data, func(node *yaml.Node) error {
		if !ofFlux(node) {
			if !b.counted[path] {
				b.tree.Ignored++
			}
			return nil
		}
		place(node, fmt.Sprintf("%s:%d", b.show(path), node.Line))
		text, err := yaml.Marshal(node)
		out.WriteString("---\n")
		out.Write(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.show(path), err)
	}
	b.counted[path] = true
	return out.Bytes(), nil
}

// build adds what kustomize makes of a folder, as far as it is wanted by its place.
func (b *builder) build(f *folder, namespace string, wanted func(place string) bool) error {
	built, err := krusty.MakeKustomizer(&krusty.Options{LoadRestrictions: types.LoadRestrictionsNone,
		PluginConfig: types.DisabledPluginConfig()}).Run(b, filepath.Dir(f.file))
	if err != nil {
		says := strings.Join(strings.Fields(err.Error()), " ")
		return fmt.Errorf("%s: kustomize does not build it: %s", b.show(f.file), says)
	}
	for _, r := range built.Resources() {
		place := r.GetAnnotations()[placeAnnotation]
		if !wanted(place) {
			continue
		}
		text, err := r.AsYAML()
		if err != nil {
			return fmt.Errorf("%s: %w", b.show(f.file), err)
		}
		var node yaml.Node
		if err := yaml.Unmarshal(text, &node); err != nil {
			return fmt.Errorf("%s: %w", b.show(f.file), err)
		}
		at := origin{place: cmp.Or(place, b.show(f.file)+":1"), files: []string{b.show(f.file)}}
		if file := fileOf(place); file != "" {
			at.files = append(at.files, file)
		}
		if err := b.tree.add(node.Content[0], at, namespace); err != nil {
			return err
		}
	}
	return nil
}

// buildAll builds the folders that no other one builds on. named are those that the command names, or lie in one that
// it names; of the others only files that it names are wanted.
func (b *builder) buildAll(named, files map[string]bool, namespace string) error {
	dirs := slices.Sorted(maps.Keys(b.folders))
	for _, again := range []bool{false, true} { // again: those that are in a circle, which kustomize refuses
		for _, dir := range dirs {
			f := b.folders[dir]
			if f == nil || f.built || f.used && !again || again && !named[dir] || f.component {
				continue
			}
			err := b.build(f, namespace, func(place string) bool { return named[dir] || files[fileOf(place)] })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fileOf is the file of a place.
func fileOf(place string) string { return place[:max(0, strings.LastIndex(place, ":"))] }

// documents calls with each document of a file, and each item of a List.
func documents(data []byte, with func(*yaml.Node) error) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return placed(err)
		}
		if len(document.Content) > 0 {
			if err := items(document.Content[0], with); err != nil {
				return err
			}
		}
	}
}

// items calls with an object, or with those of a List.
func items(node *yaml.Node, with func(*yaml.Node) error) error {
	if scalarOf(node, "kind") != "List" || groupOf(node) != "v1" {
		return with(node)
	}
	list := child(node, "items")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range list.Content {
		if err := items(item, with); err != nil {
			return err
		}
	}
	return nil
}

// place adds the annotation with the place of an object.
func place(node *yaml.Node, at string) {
	for _, key := range []string{"metadata", "annotations"} {
		next := child(node, key)
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode}
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, next)
		}
		if next.Kind == yaml.ScalarNode && next.Tag == "!!null" {
			*next = yaml.Node{Kind: yaml.MappingNode}
		}
		if next.Kind != yaml.MappingNode { // an alias, or no object: it stays without
			return
		}
		node = next
	}
	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: placeAnnotation},
		&yaml.Node{Kind: yaml.ScalarNode, Value: at, Style: yaml.DoubleQuotedStyle})
}
