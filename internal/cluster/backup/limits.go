package backup

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of what is read into memory, of which a small file must not take much. A part of the snapshot is not kept. A
// cluster of a thousand servers stays below all of them.
const (
	maxEntries   = 1 << 15  // of the tar
	maxName      = 1 << 10  // of an entry (bytes); Kubernetes has 253 for each of namespace and name
	maxEntry     = 4 << 20  // bytes of an entry that is kept; Kubernetes takes no object above 1.5 MB
	maxManifest  = 8 << 20  // bytes of the manifest: 200 for an entry
	maxPart      = 32 << 20 // bytes of a part of the snapshot
	maxKept      = 64 << 20 // bytes of all entries that are kept
	maxStructure = 1 << 19  // characters of one entry that may begin a value in YAML or JSON, which takes some 100 bytes
	maxWhole     = 1 << 21  // such characters of all entries; a server has some 1300
)

// structure are the characters of which each value in YAML or JSON takes one, but for the first.
const structure = ",:-?[{\n"

// limits are what was read so far.
type limits struct {
	names     map[string]bool
	kept      int64
	structure int
}

// admit judges an entry by its header. It refuses whatever has a size that is not that of bytes in the file: a sparse
// entry of some hundred bytes would be gigabytes in memory.
func (l *limits) admit(h *tar.Header) error {
	if len(h.Name) > maxName {
		return damaged(h.Name[:maxName], "the name of the entry is longer than %d bytes", maxName)
	}
	if h.Typeflag != tar.TypeReg || h.Size > limitOf(h.Name) {
		return damaged(h.Name, "it is no plain file of at most %d bytes", limitOf(h.Name))
	}
	for record := range h.PAXRecords {
		if record != "path" {
			return damaged(h.Name, "it has the attribute %q, which no entry of a backup has", record)
		}
	}
	if l.names[h.Name] {
		return damaged(h.Name, "it is there twice")
	}
	if len(l.names) == maxEntries {
		return damaged(h.Name, "there are more than %d entries", maxEntries)
	}
	l.names[h.Name] = true
	if !strings.HasPrefix(h.Name, snapshotPrefix) {
		l.kept += h.Size
	}
	if l.kept > maxKept {
		return damaged(h.Name, "what it has besides the etcd snapshot is larger than %d bytes", maxKept)
	}
	return nil
}

func limitOf(name string) int64 {
	switch {
	case strings.HasPrefix(name, snapshotPrefix):
		return maxPart
	case name == manifestEntry:
		return maxManifest
	}
	return maxEntry
}

// weigh bounds what text takes once it is parsed.
func (l *limits) weigh(name string, data []byte) error {
	n := 0
	for i := range len(structure) {
		n += bytes.Count(data, []byte{structure[i]})
	}
	l.structure += n
	switch {
	case n > maxStructure:
		return damaged(name, "it has more than %d values", maxStructure)
	case l.structure > maxWhole:
		return damaged(name, "all entries so far have more than %d values", maxWhole)
	}
	return nil
}

// noAnchors refuses YAML in which one value stands for several: a small text would be large in memory. Slipway writes
// none.
func noAnchors(data []byte) error {
	if !bytes.ContainsRune(data, '&') {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return err
	}
	return noAnchorIn(&document)
}

func noAnchorIn(n *yaml.Node) error {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d has an anchor or an alias, which Slipway does not write", n.Line)
	}
	for _, one := range n.Content {
		if err := noAnchorIn(one); err != nil {
			return err
		}
	}
	return nil
}
