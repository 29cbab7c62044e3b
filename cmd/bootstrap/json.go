package main

import (
	"encoding/json"
	"io"
)

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// newJSONLine writes one value as a line.
func newJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
