package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// talosconfig is the name of the file for talosctl in a state folder.
const talosconfig = "talosconfig"

// labFolder is the lab's folder in a state folder: it does not belong to the command.
const labFolder = "lab"

// readFiles reads every regular file of a state folder.
func readFiles(state string) (map[string]File, error) {
	files := map[string]File{}
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(state, path)
		if err != nil {
			return err
		}
		if d.IsDir() && name == labFolder {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = File{Mode: uint32(info.Mode().Perm()), Data: data}
		return nil
	})
	return files, err
}

// Steps reads the state of each step from the journal's file; nil: there is no journal.
func Steps(p Place) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(p.State, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return journalStates(data)
}

// journalFile is the journal's name in a state folder.
const journalFile = "journal.json"

// journalStates decodes the state of each step without the command's code.
func journalStates(data []byte) (map[string]string, error) {
	var journal struct {
		Steps map[string]struct {
			State string `json:"state"`
		} `json:"steps"`
	}
	states := map[string]string{}
	read := func() {
		for step, record := range journal.Steps {
			states[step] = record.State
		}
	}
	snapshot := json.NewDecoder(bytes.NewReader(data))
	if err := snapshot.Decode(&journal); err != nil {
		return nil, fmt.Errorf("read %s: %w", journalFile, err)
	}
	read()
	// A run that was killed leaves lines behind the snapshot: a length, a checksum and the records that changed. The last
	// may be incomplete.
	lines := bytes.TrimPrefix(data[snapshot.InputOffset():], []byte("\n"))
	for line := range bytes.Lines(lines) {
		parts := bytes.SplitN(line, []byte(" "), 3)
		journal.Steps = nil
		if len(parts) < 3 || json.Unmarshal(parts[2], &journal) != nil {
			if bytes.HasSuffix(line, []byte("\n")) {
				return nil, fmt.Errorf("read %s: the line %.40q is no change", journalFile, line)
			}
			break
		}
		read()
	}
	return states, nil
}

// content is what is compared of a file: the whole of one that people open a cluster with, but for the secrets in it,
// and of the copy of an object which it is. nil: a file of which only its mode is compared.
func (n normalizer) content(name string, data []byte) any {
	var parsed map[string]any
	switch {
	case name == "kubeconfig" || name == "management.kubeconfig" || name == talosconfig:
		if err := yaml.Unmarshal(data, &parsed); err != nil || len(parsed) == 0 {
			return "no YAML"
		}
		return n.value(withoutSecrets(parsed), "", func(allowance) []string { return nil })
	case path.Dir(name) == "pivot":
		if err := json.Unmarshal(data, &parsed); err != nil || len(parsed) == 0 {
			return "no JSON"
		}
		return n.text(text(parsed, "kind") + " " + text(parsed, "metadata", "name"))
	}
	return nil
}

// withoutSecrets is what a kubeconfig or talosconfig says, with only whether there is
// a certificate or key where one belongs.
func withoutSecrets(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range v {
			encoded, isText := inner.(string)
			secret := strings.HasSuffix(key, "-data") || slices.Contains([]string{"ca", "crt", "key", "token", "password"}, key)
			switch {
			case !isText || !secret:
				kept[key] = withoutSecrets(inner)
			case isPEM(encoded):
				kept[key] = "a certificate or key"
			default:
				kept[key] = "neither a certificate nor a key"
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(v))
		for _, inner := range v {
			kept = append(kept, withoutSecrets(inner))
		}
		return kept
	}
	return v
}

func isPEM(encoded string) bool {
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	block, _ := pem.Decode(decoded)
	return err == nil && block != nil
}

// talosAuthority is the authority of a talosconfig; empty if it has none.
func talosAuthority(data []byte) string {
	var parsed struct {
		Context  string
		Contexts map[string]struct{ CA string }
	}
	if err := yaml.Unmarshal(data, &parsed); err != nil {
		return "" // SameEnd sees that
	}
	return digest([]byte(parsed.Contexts[parsed.Context].CA))
}
