package kube

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Documents splits YAML at its document separators and leaves out documents without content.
func Documents(data []byte) ([][]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var docs [][]byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if !blank(doc) {
			docs = append(docs, bytes.Clone(doc))
		}
	}
}

// blank reports whether there is nothing but comments.
func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.HasPrefix(line, []byte("---")) {
			return false
		}
	}
	return true
}

// Parse reads one YAML document as an object. Duplicate keys are an error.
func Parse(doc []byte) (*unstructured.Unstructured, error) {
	json, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(json); err != nil {
		return nil, err
	}
	if o.GetName() == "" {
		return nil, fmt.Errorf("%s has no name", o.GetKind())
	}
	return o, nil
}
