package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// ParseFault reads KIND key=value …, where a relative path of a file is one in the state folder. Every error is a
// usageError.
func ParseFault(words []string, state string) (map[string]any, error) {
	kind, err := FaultKindOf(words[0])
	if err != nil {
		return nil, err
	}
	fault, keys := map[string]any{"kind": kind.Name}, FaultKeys()
	for _, word := range words[1:] {
		key, text, pair := strings.Cut(word, "=")
		if !pair {
			return nil, usage.Errorf("%q is not key=value: the fault %s takes %s", word, kind.Name, kind.usage())
		}
		if err := kind.check(key); err != nil {
			return nil, err
		}
		switch {
		case fault[key] != nil:
			return nil, usage.Errorf("%s is given twice", key)
		case text == "":
			return nil, usage.Errorf("%s has no value", key)
		}
		value, err := keys[key].read(text)
		if err == nil && key == "file" {
			value, err = fileIn(state, text)
		}
		if err != nil {
			return nil, usage.Errorf("%s=%s: %w", key, text, err)
		}
		fault[key] = value
	}
	for _, key := range kind.needs {
		if fault[key] == nil {
			return nil, usage.Errorf("the fault %s needs %s=…; it takes %s", kind.Name, key, kind.usage())
		}
	}
	return fault, nil
}

// fileIn is the absolute path of a file that is there; a relative one is in a folder.
func fileIn(folder, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("a relative path is one in the state folder %s: %w", folder, err)
	}
	return path, nil
}

// Fault is a fault that is in force.
type Fault struct {
	ID     int64
	Kind   string
	Hits   int
	Since  time.Time
	Until  time.Time
	fields map[string]any // all of them, by their names
}

// UnmarshalJSON reads the fields that all faults have, and keeps the others as they are.
func (f *Fault) UnmarshalJSON(data []byte) error {
	type known Fault
	if err := json.Unmarshal(data, (*known)(f)); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a seed has more digits than a float keeps
	return decoder.Decode(&f.fields)
}

// Words are the fault as it would be asked for.
func (f Fault) Words() string {
	words := []string{f.Kind}
	for _, key := range slices.Sorted(maps.Keys(FaultKeys())) {
		if value, ok := f.fields[key]; ok {
			words = append(words, fmt.Sprintf("%s=%v", key, value))
		}
	}
	return strings.Join(words, " ")
}
