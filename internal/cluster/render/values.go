package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Values reads a file with its variables filled in. The operator's Helm values are merged over the built-in ones.
func (s Source) Values(v Variables) (map[string]any, error) {
	own, err := s.decode(s.Data, v)
	if err != nil || !s.Own || !s.merges {
		return own, err
	}
	base, err := s.decode(s.BuiltIn, v)
	if err != nil {
		return nil, err
	}
	return MergeValues(base, own), nil
}

func (s Source) decode(text []byte, v Variables) (map[string]any, error) {
	filled, err := s.Fill(text, v)
	if err != nil {
		return nil, err
	}
	docs, err := kube.Documents(filled)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s: it has %d YAML documents, and Helm takes one: write the values into one, without --- between "+
			"them", s.Name, len(docs))
	}
	var content any
	if err := yaml.UnmarshalStrict(filled, &content); err != nil {
		return nil, fmt.Errorf("%s: %s", s.Name, strings.Join(strings.Fields(err.Error()), " "))
	}
	values, are := content.(map[string]any)
	if !are && content != nil {
		return nil, fmt.Errorf("%s: it is no mapping: write the values as name: value", s.Name)
	}
	if values == nil {
		values = map[string]any{}
	}
	return values, nil
}

// MergeValues puts values over others: maps are merged, lists and scalars replaced. null takes away what is below it,
// so that the chart's default holds; where there is nothing below it, it stays for Helm, which takes the chart's
// default away. Of value and valueFrom, of which an environment variable of a container has one, what is put over the
// others takes the place of both.
func MergeValues(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	for one, other := range map[string]string{"value": "valueFrom", "valueFrom": "value"} {
		_, given := over[one]
		if _, both := over[other]; given && !both {
			delete(merged, other)
		}
	}
	for key, value := range over {
		below, found := merged[key]
		belowMap, belowIsMap := below.(map[string]any)
		valueMap, valueIsMap := value.(map[string]any)
		switch {
		case value == nil && found:
			delete(merged, key)
		case belowIsMap && valueIsMap:
			merged[key] = MergeValues(belowMap, valueMap)
		default:
			merged[key] = value
		}
	}
	return merged
}

// MergedHeader begins a text that the journal knows merged values by.
const MergedHeader = "# The built-in values, and the operator's merged over them. Variables are filled in.\n"

// EffectiveText is what the journal knows a file by.
type EffectiveText struct {
	Data    []byte
	written []byte // with the variables that are in it
}

// Sum is the SHA-256 of the text, in hexadecimal.
func (t EffectiveText) Sum() string {
	sum := sha256.Sum256(bytes.ReplaceAll(t.Data, []byte(namespaceInFile), []byte(config.DefaultNamespace)))
	return hex.EncodeToString(sum[:])
}

// Effective is the file itself, but for values that are merged from two files. Where one of the two alone comes to the
// same values it is that one, so that a file without an effect does not upgrade a release.
func (s Source) Effective(v Variables) (EffectiveText, error) {
	itself := EffectiveText{Data: s.Data, written: s.Data}
	if !s.Own || !s.merges {
		return itself, nil
	}
	own, err := s.decode(s.Data, v)
	if err != nil {
		return EffectiveText{}, err
	}
	base, err := s.decode(s.BuiltIn, v)
	if err != nil {
		return EffectiveText{}, err
	}
	merged := MergeValues(base, own)
	switch {
	case reflect.DeepEqual(merged, own):
		return itself, nil
	case reflect.DeepEqual(merged, base):
		return EffectiveText{Data: s.BuiltIn, written: s.BuiltIn}, nil
	}
	text, err := yaml.Marshal(merged)
	if err != nil {
		return EffectiveText{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return EffectiveText{Data: append([]byte(MergedHeader), text...), written: slices.Concat(s.BuiltIn, []byte("\n"),
		s.Data)}, nil
}
