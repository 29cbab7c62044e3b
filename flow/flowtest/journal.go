// Package flowtest has tests for those who build graphs with package flow.
package flowtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// GoldenJournal holds the types of a graph's outputs against a journal in a file, of today's format or of an older
// release. A field that was added to a type passes; one that was removed, renamed or changed its type fails the test: a
// run of the newer program with the older journal would lose what the field says.
//
// With update the file gets what it lacks: steps and fields, with made-up values. It never loses anything that way.
// What no release ever wrote is taken out of it by hand.
func GoldenJournal(t *testing.T, g *flow.Graph, file string, update bool) {
	t.Helper()
	golden, err := Read(file)
	if err != nil && !(update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatalf("read the golden journal: %v; to write it, run this test with -update", err)
	}
	if update {
		if golden, err = complete(golden, g); err == nil {
			err = write(file, golden)
		}
		if err != nil {
			t.Fatalf("update %s: %v", file, err)
		}
	}
	if golden.Graph != g.Name() {
		t.Fatalf("%s is a journal of graph %q, not of %q", file, golden.Graph, g.Name())
	}
	for _, s := range g.Steps() {
		rec, ok := golden.Steps[s.Name]
		if !ok {
			t.Errorf("%s has no output of step %s (%s): add it by running this test with -update", file, s.Name, s.Output)
			continue
		}
		if err := restores(rec.Output, s.Output); err != nil {
			t.Errorf("the output of step %s in %s does not restore as a %s: %v\nA journal that an older release wrote must "+
				"stay readable: keep the field, under its name and with its type", s.Name, file, s.Output, err)
		}
	}
}

// Read reads a golden journal.
func Read(file string) (flow.Snapshot, error) {
	var s flow.Snapshot
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

// Save is a journal in memory with the content of a golden one.
func Save(t *testing.T, s flow.Snapshot) flow.Journal {
	t.Helper()
	j := flow.Memory()
	if err := j.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return j
}

// restores says what of a recorded output is lost on its way through a type.
func restores(recorded json.RawMessage, output reflect.Type) error {
	restored := reflect.New(output)
	if err := json.Unmarshal(recorded, restored.Interface()); err != nil {
		return err
	}
	again, err := json.Marshal(restored.Elem().Interface())
	if err != nil {
		return err
	}
	var was, is any
	if err := errors.Join(json.Unmarshal(recorded, &was), json.Unmarshal(again, &is)); err != nil {
		return err
	}
	return lost("", was, is)
}

// lost compares JSON values: everything in was must be in is. What is only in is was added since.
func lost(path string, was, is any) error {
	switch was := was.(type) {
	case map[string]any:
		now, ok := is.(map[string]any)
		if !ok {
			return fmt.Errorf("%s was an object, and is %v", path, is)
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			value, ok := now[name]
			if !ok {
				return fmt.Errorf("field %s is lost", join(path, name))
			}
			if err := lost(join(path, name), was[name], value); err != nil {
				return err
			}
		}
		return nil
	case []any:
		now, ok := is.([]any)
		if !ok || len(now) != len(was) {
			return fmt.Errorf("%s was %v, and is %v", path, was, is)
		}
		for i := range was {
			if err := lost(fmt.Sprintf("%s[%d]", path, i), was[i], now[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%s was %v, and is %v", path, was, is)
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// complete adds the steps and fields that a golden journal lacks.
func complete(golden flow.Snapshot, g *flow.Graph) (flow.Snapshot, error) {
	golden.Format, golden.Graph, golden.Run = flow.Format, g.Name(), "golden"
	if golden.Steps == nil {
		golden.Steps = map[string]flow.Record{}
	}
	for _, s := range g.Steps() {
		value := reflect.New(s.Output).Elem()
		fill(value, 0)
		raw, err := json.Marshal(value.Interface())
		if err != nil {
			return golden, fmt.Errorf("invent an output of step %s: %w", s.Name, err)
		}
		rec, ok := golden.Steps[s.Name]
		if !ok {
			rec = flow.Record{State: flow.StateDone, Attempt: 1, Run: "golden", Output: json.RawMessage("null")}
		}
		var was, is any
		if err := errors.Join(json.Unmarshal(rec.Output, &was), json.Unmarshal(raw, &is)); err != nil {
			return golden, err
		}
		if rec.Output, err = json.Marshal(merge(was, is)); err != nil {
			return golden, err
		}
		golden.Steps[s.Name] = rec
	}
	return golden, nil
}

// merge is was, with the fields that only is has.
func merge(was, is any) any {
	old, isObject := was.(map[string]any)
	now, ok := is.(map[string]any)
	if was == nil {
		return is
	}
	if !isObject || !ok {
		return was
	}
	for name, value := range now {
		old[name] = merge(old[name], value)
	}
	return old
}

// deepest bounds types that contain themselves.
const deepest = 6

// fill sets everything in a value that shows the type of a field.
func fill(v reflect.Value, depth int) {
	if depth > deepest || !v.CanSet() {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"key":"value"}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// write writes a journal without its sum: it is edited by hand.
func write(file string, s flow.Snapshot) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	delete(members, "sum")
	data, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
