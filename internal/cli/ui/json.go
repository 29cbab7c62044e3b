package ui

import (
	"encoding/json"
	"io"
)

// PrintJSON writes a document as indented JSON.
func PrintJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// PrintJSONLine writes one value as a line.
func PrintJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
