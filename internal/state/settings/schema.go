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

// object is a part of a schema.
type object = map[string]any

// words are a text that may be left out.
func words(doc string) object { return object{"type": []string{"string", "null"}, "description": doc} }

// listOf is a list that may be left out.
func listOf(items object, doc string) object {
	return object{"type": []string{"array", "null"}, "items": items, "description": doc}
}

// mapping is a mapping with these keys and no others.
func mapping(required []string, keys object) object {
	return object{"type": "object", "additionalProperties": false, "required": required, "properties": keys}
}

// configSchemaVersion is the dialect that editors know best.
const configSchemaVersion = "http://json-schema.org/draft-07/schema#"

// Schema describes bootstrap.yaml for editors. A key without a value
// leaves the default, so null is always allowed.
func Schema() map[string]any {
	properties := object{
		TokenFileKey:    words("File with the Hetzner Cloud API token, in place of " + TokenVariable + "."),
		TokenCommandKey: words("Command that prints the Hetzner Cloud API token, in place of " + TokenVariable + "."),
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
	return object{
		"$schema": configSchemaVersion, "title": "bootstrap.yaml", "description": "Configuration of a Slipway bootstrap.",
		"type": "object", "additionalProperties": false, "properties": properties,
		"not": object{"required": []string{TokenFileKey, TokenCommandKey}},
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
		p.Type, p.Items = []string{"string", "array", "null"}, object{"type": "string"}
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
