package kubelet

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// LoadPrograms reads a mapping from a YAML file: a list of objects with the keys image, exec, prefix, args, env,
// noContainerArgs, reads, tools, fidelity (real or stand-in, which nothing checks; default mapped) and note. Errors
// name line and column.
func LoadPrograms(file string) ([]Program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the image mapping: %w", err)
	}
	programs, err := parsePrograms(data)
	if err != nil {
		return nil, fmt.Errorf("image mapping %s: %w", file, err)
	}
	return programs, nil
}

func parsePrograms(data []byte) ([]Program, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	if document.Kind == 0 { // an empty file
		return nil, nil
	}
	list := document.Content[0]
	if list.Kind != yaml.SequenceNode {
		return nil, at(list, "want a list of programs, each with image and exec")
	}
	programs := make([]Program, 0, len(list.Content))
	for _, item := range list.Content {
		p, err := parseProgram(item)
		if err != nil {
			return nil, err
		}
		if err := p.Validate(); err != nil {
			return nil, at(item, "%w", err)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

func parseProgram(item *yaml.Node) (Program, error) {
	p := Program{Fidelity: Mapped}
	if item.Kind != yaml.MappingNode {
		return p, at(item, "want an object with image and exec")
	}
	fields := map[string]any{
		"image": &p.Image, "exec": &p.Exec, "prefix": &p.Prefix, "args": &p.Args, "env": &p.Env,
		"noContainerArgs": &p.NoContainerArgs, "reads": &p.Reads, "tools": &p.Tools, "fidelity": &p.Fidelity, "note": &p.Note,
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(item.Content); i += 2 {
		key, value := item.Content[i], item.Content[i+1]
		target, known := fields[key.Value]
		switch {
		case !known:
			return p, at(key, "unknown key %q: the keys are image, exec, prefix, args, env, noContainerArgs, reads, tools, "+
				"fidelity and note", key.Value)
		case seen[key.Value]:
			return p, at(key, "key %q is given twice", key.Value)
		}
		seen[key.Value] = true
		if err := value.Decode(target); err != nil {
			return p, at(value, "%s: %w", key.Value, err)
		}
		if key.Value == "fidelity" && p.Fidelity != Real && p.Fidelity != StandIn {
			return p, at(value, "fidelity %q: write %q or %q", p.Fidelity, Real, StandIn)
		}
	}
	return p, nil
}

func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %w", n.Line, n.Column, fmt.Errorf(format, args...))
}
