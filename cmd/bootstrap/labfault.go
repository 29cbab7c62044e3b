package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// parseFault reads KIND key=value …, where a relative path of a file is one in the state folder. Every error is a usageError.
func parseFault(words []string, state string) (map[string]any, error) {
	kind, err := faultKindOf(words[0])
	if err != nil {
		return nil, err
	}
	fault, keys := map[string]any{"kind": kind.name}, faultKeys()
	for _, word := range words[1:] {
		key, text, pair := strings.Cut(word, "=")
		if !pair {
			return nil, usagef("%q is not key=value: the fault %s takes %s", word, kind.name, kind.usage())
		}
		if err := kind.check(key); err != nil {
			return nil, err
		}
		switch {
		case fault[key] != nil:
			return nil, usagef("%s is given twice", key)
		case text == "":
			return nil, usagef("%s has no value", key)
		}
		value, err := keys[key].read(text)
		if err == nil && key == "file" {
			value, err = fileIn(state, text)
		}
		if err != nil {
			return nil, usagef("%s=%s: %w", key, text, err)
		}
		fault[key] = value
	}
	for _, key := range kind.needs {
		if fault[key] == nil {
			return nil, usagef("the fault %s needs %s=…; it takes %s", kind.name, key, kind.usage())
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

// runLabFaultAdd has something go wrong in the lab.
func runLabFaultAdd(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	fault, err := parseFault(a.Targets[3:], filepath.Dir(l.dir))
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

// runLabFaultList prints the faults in force.
func runLabFaultList(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
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

// runLabFaultRemove ends a fault.
func runLabFaultRemove(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
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
