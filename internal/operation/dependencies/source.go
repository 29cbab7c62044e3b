package dependencies

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sourceGroup is the API group of Flux's sources.
const sourceGroup = "source.toolkit.fluxcd.io"

// fluxSystem is the name and the namespace of the source that `flux bootstrap`, and Slipway, create for a repository.
const fluxSystem = "flux-system"

// addSource remembers the address of a source.
func (t *Tree) addSource(kind string, node *yaml.Node, namespace string) {
	var s struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ URL string }
	}
	if err := node.Decode(&s); err != nil || s.Spec.URL == "" {
		return
	}
	if t.sources == nil {
		t.sources = map[Key]string{}
	}
	if s.Metadata.Namespace != "" {
		namespace = s.Metadata.Namespace
	}
	t.sources[Key{kind, namespace, s.Metadata.Name}] = address(s.Spec.URL)
}

// source is what a Kustomization reads; the zero Key: it does not say.
func (o *Object) source() Key {
	if o.from.Name == "" {
		return Key{}
	}
	if o.from.Namespace == "" {
		return Key{o.from.Kind, o.Namespace, o.from.Name} // Flux's default: the object's own
	}
	return Key{o.from.Kind, o.from.Namespace, o.from.Name}
}

// reads tells whether a Kustomization applies the repository with a root, and whether that is known.
func (t *Tree) reads(k *Object, root string, remotes map[string][]string) (is, known bool) {
	source := k.source()
	if source == (Key{}) || source.Namespace == fluxSystem && source.Name == fluxSystem {
		return true, true
	}
	if _, read := remotes[root]; !read {
		remotes[root] = remotesOf(root)
		for _, kind := range []string{"GitRepository", "OCIRepository", "Bucket"} {
			if url := t.sources[Key{kind, fluxSystem, fluxSystem}]; url != "" {
				remotes[root] = append(remotes[root], url)
			}
		}
	}
	url := t.sources[source]
	return url != "" && slices.Contains(remotes[root], url),
		url != "" && len(remotes[root]) > 0 && source.Kind == "GitRepository"
}

// scp is git's short form of an SSH address: git@host:path.
var scp = regexp.MustCompile(`^(?:[^@/:]+@)?([^/:]+):([^/].*)$`)

// address is the host and path of a repository's address, however it is reached.
func address(url string) string {
	_, rest, is := strings.Cut(url, "://")
	if found := scp.FindStringSubmatch(url); !is && found != nil {
		rest, is = found[1]+"/"+found[2], true
	}
	if !is {
		rest = url
	}
	host, path, _ := strings.Cut(rest, "/")
	host = host[strings.LastIndex(host, "@")+1:]
	host, _, _ = strings.Cut(host, ":")
	return strings.ToLower(host) + "/" + strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}

// remotesOf are the addresses of the remotes of a repository; none where it has no .git. The file is read as git writes
// it: the command runs no git in a folder of others.
func remotesOf(root string) (all []string) {
	dir := filepath.Join(root, ".git")
	if link, err := os.ReadFile(dir); err == nil { // of a work tree
		dir = strings.TrimSpace(strings.TrimPrefix(string(link), "gitdir:"))
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(root, dir)
		}
		if common, err := os.ReadFile(filepath.Join(dir, "commondir")); err == nil {
			dir = filepath.Join(dir, strings.TrimSpace(string(common)))
		}
	}
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return nil
	}
	remote := false
	for s := bufio.NewScanner(bytes.NewReader(config)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		key, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			remote = strings.HasPrefix(line, `[remote "`)
		case remote && strings.TrimSpace(key) == "url":
			all = append(all, address(strings.Trim(strings.TrimSpace(value), `"`)))
		}
	}
	return all
}
