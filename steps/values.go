package steps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/yaml"
)

// values reads a file with its variables filled in. The operator's Helm values are merged over the built-in ones.
func (s source) values(v variables) (map[string]any, error) {
	own, err := s.decode(s.data, v)
	if err != nil || !s.own || !s.merges {
		return own, err
	}
	base, err := s.decode(s.builtIn, v)
	if err != nil {
		return nil, err
	}
	return mergeValues(base, own), nil
}

func (s source) decode(text []byte, v variables) (map[string]any, error) {
	filled, err := s.fill(text, v)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(filled, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return values, nil
}

// mergeValues puts values over others: maps are merged, lists and scalars replaced. null takes away what is below it, so that
// the chart's default holds; where there is nothing below it, it stays for Helm, which takes the chart's default away.
func mergeValues(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	for key, value := range over {
		below, found := merged[key]
		belowMap, belowIsMap := below.(map[string]any)
		valueMap, valueIsMap := value.(map[string]any)
		switch {
		case value == nil && found:
			delete(merged, key)
		case belowIsMap && valueIsMap:
			merged[key] = mergeValues(belowMap, valueMap)
		default:
			merged[key] = value
		}
	}
	return merged
}

// mergedHeader begins a text that the journal knows merged values by.
const mergedHeader = "# The built-in values, and the operator's merged over them. Variables are filled in.\n"

// effectiveText is what the journal knows a file by.
type effectiveText struct {
	data    []byte
	written []byte // with the variables that are in it
}

func (t effectiveText) sum() string {
	sum := sha256.Sum256(t.data)
	return hex.EncodeToString(sum[:])
}

// effective is the file itself, but for values that are merged from two files. Where one of the two alone comes to the same
// values it is that one, so that a file without an effect does not upgrade a release.
func (s source) effective(v variables) (effectiveText, error) {
	itself := effectiveText{data: s.data, written: s.data}
	if !s.own || !s.merges {
		return itself, nil
	}
	own, err := s.decode(s.data, v)
	if err != nil {
		return effectiveText{}, err
	}
	base, err := s.decode(s.builtIn, v)
	if err != nil {
		return effectiveText{}, err
	}
	merged := mergeValues(base, own)
	switch {
	case reflect.DeepEqual(merged, own):
		return itself, nil
	case reflect.DeepEqual(merged, base):
		return effectiveText{data: s.builtIn, written: s.builtIn}, nil
	}
	text, err := yaml.Marshal(merged)
	if err != nil {
		return effectiveText{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return effectiveText{data: append([]byte(mergedHeader), text...), written: slices.Concat(s.builtIn, []byte("\n"), s.data)}, nil
}
