package flux

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
)

// listFile is the file of a folder that says which of its files kustomize applies.
const listFile = "kustomization.yaml"

// otherListFiles are the other names that kustomize knows for it.
var otherListFiles = []string{"kustomization.yml", "Kustomization"}

// FileState is how a file of the tree compares with what is there.
type FileState string

// The states of a file.
const (
	New       FileState = "new"
	Same      FileState = "same"
	Different FileState = "different" // is only replaced with --force
)

// TreeFile is a file of the tree.
type TreeFile struct {
	Path    string    `json:"path"` // below the folder
	State   FileState `json:"state"`
	Content string    `json:"content,omitempty"` // of --dry-run
}

// SecretNeeded is a Secret in the namespace flux-system that Git does not have and that Flux waits for.
type SecretNeeded struct {
	Name string   `json:"name"`
	For  string   `json:"for"`    // the object that names it
	Has  []string `json:"has"`    // its keys; of values.yaml, the paths of the values that are secrets
	Make string   `json:"create"` // how it is created
}

// Tree is what the folder gets.
type Tree struct {
	Kind    string         `json:"kind"`             // "gitops"
	Dir     string         `json:"dir"`              // the folder on this machine, or the address of the repository
	Path    string         `json:"path"`             // of the cluster's part, below it
	DryRun  bool           `json:"dryRun"`           // nothing was written
	Commit  string         `json:"commit,omitempty"` // that was pushed; empty: none
	Files   []TreeFile     `json:"files"`
	LeftOut []LeftOut      `json:"leftOut"`
	Secrets []SecretNeeded `json:"secrets"`
	Next    []string       `json:"next"` // commands, in their order
}

// MakeTree makes the tree of releases, and compares it with what the folder has. The zero Folder has nothing.
func MakeTree(cfg config.Config, releases []Release, left []LeftOut, dir Folder) (Tree, error) {
	t := Tree{Kind: "gitops", Dir: dir.path, Path: cfg.GitFolder(), Files: []TreeFile{}, LeftOut: append([]LeftOut{},
		left...),
		Secrets: []SecretNeeded{}}
	resources := map[string][]string{sources: nil, infrastructure: nil, apps: nil}
	objects := map[string]doc{}
	names, order := repositoryNames(releases)
	for _, repository := range order {
		name := names[repository]
		o, secret := helmRepository(name, repository)
		objects[path.Join(sources, name+".yaml")] = o
		resources[sources] = append(resources[sources], name+".yaml")
		if secret {
			t.Secrets = append(t.Secrets, SecretNeeded{name, "HelmRepository " + name, []string{"username", "password"},
				"kubectl create secret generic " + name + " --namespace flux-system --from-file=username --from-file=password"})
		}
	}
	for _, r := range releases {
		objects[path.Join(r.folder, r.Program+".yaml")] = helmRelease(r, names[r.Repository])
		resources[r.folder] = append(resources[r.folder], r.Program+".yaml")
		if len(r.Private) > 0 {
			t.Secrets = append(t.Secrets, SecretNeeded{r.Secret(), "HelmRelease " + r.Program, r.Private,
				"helm get values " + r.Release + " --namespace " + r.Namespace + " --output yaml | kubectl create secret generic " +
					r.Secret() + " --namespace flux-system --from-file=values.yaml=/dev/stdin"})
		}
	}
	objects[infrastructure+".yaml"] = kustomization(t.Path, infrastructure, together(releases, infrastructure)+margin)
	objects[apps+".yaml"] = kustomization(t.Path, apps, together(releases, apps)+margin, infrastructure)
	resources["."] = []string{sources, infrastructure + ".yaml", apps + ".yaml"}
	for _, folder := range []string{".", sources, infrastructure, apps} {
		own := append([]string{}, resources[folder]...) // never nil: it is a list in YAML
		others, err := dir.others(path.Join(t.Path, folder), own, folder == ".")
		if err != nil {
			return t, err
		}
		objects[path.Join(folder, listFile)] = list(append(own, others...))
	}
	return t, t.compare(objects, dir)
}

// compare adds the files of the objects to the tree, with what the folder has of them.
func (t *Tree) compare(objects map[string]doc, dir Folder) error {
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		content, err := encode(objects[name])
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		f := TreeFile{Path: path.Join(t.Path, name), Content: content}
		if f.State, err = dir.state(f.Path, content); err != nil {
			return err
		}
		t.Files = append(t.Files, f)
	}
	return nil
}

// Conflict is an error where files are there that differ: nothing may be written.
func (t *Tree) Conflict() error {
	var names []string
	for _, f := range t.Files {
		if f.State == Different {
			names = append(names, f.Path)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("in %s these files are there and differ: %s: nothing is written; compare them with --dry-run, and "+
		"remove them, or replace them with --force", t.Dir, strings.Join(names, ", "))
}

// Print writes the tree for people; the files themselves where nothing was written.
func (t *Tree) Print(w io.Writer, width int) error {
	var b strings.Builder
	if t.DryRun {
		for _, f := range t.Files {
			fmt.Fprintf(&b, "---\n# %s (%s)\n%s", f.Path, f.State, f.Content)
		}
		b.WriteString("---\n")
	} else {
		var rows [][]string
		for _, f := range t.Files {
			did := map[FileState]string{New: "written", Same: "is so already", Different: "replaced"}[f.State]
			rows = append(rows, []string{text.Printable(f.Path), did})
		}
		text.Table(&b, width, []string{"FILE", "RESULT"}, rows...)
	}
	comment := map[bool]string{true: "# "}[t.DryRun] // what is printed stays YAML
	b.WriteByte('\n')
	switch {
	case t.DryRun || !strings.Contains(t.Dir, "://"):
	case t.Commit == "":
		fmt.Fprintf(&b, "%s has all of it: there was nothing to push\n", t.Dir)
	default:
		fmt.Fprintf(&b, "pushed commit %s to %s\n", t.Commit, t.Dir)
	}
	for _, l := range t.LeftOut {
		fmt.Fprintf(&b, "%sleft out: Helm release %s: %s\n", comment, l.Release, l.Why)
	}
	for _, s := range t.Secrets {
		fmt.Fprintf(&b, "%sSecret flux-system/%s is needed by %s, and not in Git (%s):\n%s  %s\n", comment, s.Name, s.For,
			text.Printable(strings.Join(s.Has, ", ")), comment, s.Make)
	}
	if len(t.Next) > 0 {
		fmt.Fprintf(&b, "%snext:\n", comment)
	}
	for _, command := range t.Next {
		fmt.Fprintf(&b, "%s  %s\n", comment, command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WithoutContent takes the files' content out of the tree.
func (t *Tree) WithoutContent() {
	for i := range t.Files {
		t.Files[i].Content = ""
	}
}
