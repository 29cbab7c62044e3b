package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// faultKeys are the fields of a lab's fault, with what reads their values. Which
// kind takes which of them the lab knows.
func faultKeys() map[string]func(string) (any, error) {
	text := func(s string) (any, error) { return s, nil }
	number := func(s string) (any, error) { return strconv.ParseUint(s, 10, 63) }
	keys := map[string]func(string) (any, error){
		"status": number, "skip": number, "times": number, "seed": number,
		"probability": func(s string) (any, error) { return strconv.ParseFloat(s, 64) },
	}
	for _, key := range []string{"delay", "for"} {
		keys[key] = func(s string) (any, error) { _, err := time.ParseDuration(s); return s, err }
	}
	for _, key := range []string{"method", "path", "actor", "serverType", "location", "server", "command", "code", "message", "cluster", "service", "file"} {
		keys[key] = text
	}
	return keys
}

// parseFault reads KIND key=value …; a path is made absolute. Every error is a
// usageError.
func parseFault(words []string, workDir string) (map[string]any, error) {
	fault, keys := map[string]any{"kind": words[0]}, faultKeys()
	for _, word := range words[1:] {
		key, text, pair := strings.Cut(word, "=")
		read, known := keys[key]
		switch {
		case !pair:
			return nil, usagef("%q is not key=value", word)
		case !known:
			names := slices.Sorted(maps.Keys(keys))
			return nil, usagef("a fault has no %q%s; there are %s", key, didYouMean("", key, names), strings.Join(names, ", "))
		case fault[key] != nil:
			return nil, usagef("%s is given twice", key)
		case text == "":
			return nil, usagef("%s has no value", key)
		}
		value, err := read(text)
		if err != nil {
			return nil, usagef("%s=%s: %w", key, text, err)
		}
		if key == "file" && !filepath.IsAbs(text) {
			value = filepath.Join(workDir, text)
		}
		fault[key] = value
	}
	return fault, nil
}

// labFault is a fault that is in force.
type labFault struct {
	ID     int64
	Kind   string
	Hits   int
	Since  time.Time
	Until  time.Time
	fields map[string]any // all of them, by their names
}

func (f *labFault) UnmarshalJSON(data []byte) error {
	type known labFault
	if err := json.Unmarshal(data, (*known)(f)); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a seed has more digits than a float keeps
	return decoder.Decode(&f.fields)
}

// words are the fault as it would be asked for.
func (f labFault) words() string {
	words := []string{f.Kind}
	for _, key := range slices.Sorted(maps.Keys(faultKeys())) {
		if value, ok := f.fields[key]; ok {
			words = append(words, fmt.Sprintf("%s=%v", key, value))
		}
	}
	return strings.Join(words, " ")
}

// labFaultAdd has something go wrong in the lab.
func (c *command) labFaultAdd(ctx context.Context, a arguments) error {
	l, err := c.labOf(ctx, a)
	if err != nil {
		return err
	}
	fault, err := parseFault(a.Targets[3:], c.workDir)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.client.send(ctx, http.MethodPost, "/v1/faults", fault, &raw); err != nil {
		return refusedFault(err)
	}
	if a.Options.Output == "json" {
		return printJSON(c.stdout, raw)
	}
	var begun labFault
	if err := json.Unmarshal(raw, &begun); err != nil {
		return fmt.Errorf("read the lab's answer: %w", err)
	}
	fmt.Fprintf(c.stdout, "fault %d: %s\n", begun.ID, printable(begun.words()))
	return nil
}

// labFaultList prints the faults in force.
func (c *command) labFaultList(ctx context.Context, a arguments) error {
	l, err := c.labOf(ctx, a)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.client.do(ctx, http.MethodGet, "/v1/faults", &raw); err != nil {
		return err
	}
	if a.Options.Output == "json" {
		return printJSON(c.stdout, raw)
	}
	var list struct{ Faults []labFault }
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("read the lab's faults: %w", err)
	}
	if len(list.Faults) == 0 {
		fmt.Fprintln(c.stdout, "no fault is in force")
		return nil
	}
	return printFaults(c.stdout, list.Faults)
}

func printFaults(out io.Writer, faults []labFault) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tFAULT\tHITS\tSINCE\tENDS IN")
	for _, f := range faults {
		ends := "-"
		if !f.Until.IsZero() {
			ends = elapsed(time.Until(f.Until))
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\n", f.ID, printable(f.words()), f.Hits, elapsed(time.Since(f.Since)), ends)
	}
	return w.Flush()
}

// labFaultRemove ends a fault.
func (c *command) labFaultRemove(ctx context.Context, a arguments) error {
	l, err := c.labOf(ctx, a)
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.Targets[3], 10, 63)
	if err != nil {
		return usagef("%q is not a fault's number: lab fault list has them", a.Targets[3])
	}
	if err := l.client.do(ctx, http.MethodDelete, fmt.Sprintf("/v1/faults/%d", id), nil); err != nil {
		return refusedFault(err)
	}
	fmt.Fprintf(c.stdout, "fault %d is undone\n", id)
	return nil
}

// refusedFault makes of what the lab does not take a mistake in the arguments.
func refusedFault(err error) error {
	refused, ok := errorAs[*labError](err)
	if ok && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusNotFound) {
		return usagef("%s", refused.Message)
	}
	return err
}
