package settings

import (
	"strconv"

	"github.com/slipway-k8s/slipway/config"
)

// property is one key of bootstrap.yaml in its schema.
type property struct {
	Description string   `json:"description"`
	Default     any      `json:"default,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	Enum        []any    `json:"enum,omitempty"`
	Type        []string `json:"type"`
	Items       any      `json:"items,omitempty"`
}

// configSchemaVersion is the dialect that editors know best.
const configSchemaVersion = "http://json-schema.org/draft-07/schema#"

// Schema describes bootstrap.yaml for editors. A key without a value
// leaves the default, so null is always allowed.
func Schema() map[string]any {
	properties := map[string]any{
		TokenFileKey: property{Description: "File with the Hetzner Cloud API token, in place of " + TokenVariable + ".",
			Type: []string{"string", "null"}},
		TokenCommandKey: property{Description: "Command that prints the Hetzner Cloud API token, in place of " + TokenVariable + ".",
			Type: []string{"string", "null"}},
	}
	for _, v := range config.Variables() {
		properties[v.Field] = propertyOf(v)
		switch v.Field {
		case workersField:
			properties[v.Field] = poolsSchema(v)
		case addonsField:
			properties[v.Field] = addonsSchema(v)
		}
	}
	return map[string]any{
		"$schema": configSchemaVersion, "title": "bootstrap.yaml", "description": "Configuration of a Slipway bootstrap.",
		"type": "object", "additionalProperties": false, "properties": properties,
		"not": map[string]any{"required": []string{TokenFileKey, TokenCommandKey}},
	}
}

func propertyOf(v config.Variable) property {
	p := property{Description: v.Doc + " (" + v.Name + ")", Type: []string{"string", "null"}, Pattern: v.Pattern()}
	asJSON := func(text string) any { return text }
	if v.Type() == "integer" {
		p.Type = []string{"integer", "null"}
		asJSON = func(text string) any { n, _ := strconv.Atoi(text); return n }
	}
	if v.Lists() {
		p.Type, p.Items = []string{"string", "array", "null"}, map[string]any{"type": "string"}
	}
	if v.Name == "GITEA" || v.Name == "PIVOT" { // YAML's true and false are as good as the words
		p.Type = []string{"boolean", "string", "null"}
		p.Enum = []any{true, false}
	}
	if v.Default != "" {
		p.Default = asJSON(v.Default)
	}
	for _, choice := range v.Choices() {
		if p.Pattern != "" {
			break // the choices are the words of a list
		}
		p.Enum = append(p.Enum, asJSON(choice))
	}
	if len(p.Enum) > 0 {
		p.Enum = append(p.Enum, nil)
	}
	return p
}
