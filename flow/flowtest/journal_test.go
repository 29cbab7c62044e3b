package flowtest

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

type first struct {
	Name    string            `json:"name"`
	Since   time.Time         `json:"since"`
	Nested  []struct{ A int } `json:"nested"`
	ByName  map[string]bool   `json:"byName"`
	Perhaps *int              `json:"perhaps,omitempty"`
}

type grown struct {
	first
	Added string `json:"added"`
}

type renamed struct {
	Title   string            `json:"title"`
	Since   time.Time         `json:"since"`
	Nested  []struct{ A int } `json:"nested"`
	ByName  map[string]bool   `json:"byName"`
	Perhaps *int              `json:"perhaps,omitempty"`
}

type retyped struct {
	Name int `json:"name"`
}

type shrunk struct {
	Name    string               `json:"name"`
	Since   time.Time            `json:"since"`
	Nested  []struct{ B string } `json:"nested"`
	ByName  map[string]bool      `json:"byName"`
	Perhaps *int                 `json:"perhaps,omitempty"`
}

func TestWhatAnOutputMayBecome(t *testing.T) {
	value := reflect.New(reflect.TypeFor[first]()).Elem()
	fill(value, 0)
	raw, err := json.Marshal(value.Interface())
	if err != nil || strings.Contains(string(raw), "null") || !strings.Contains(string(raw), `"perhaps":7`) {
		t.Fatalf("made up %s, %v", raw, err)
	}
	for _, tt := range []struct {
		now  reflect.Type
		want string
	}{
		{reflect.TypeFor[first](), ""},
		{reflect.TypeFor[grown](), ""},
		{reflect.TypeFor[renamed](), "field name is lost"},
		{reflect.TypeFor[retyped](), "cannot unmarshal"},
		{reflect.TypeFor[shrunk](), "field nested[0].A is lost"},
	} {
		err := restores(raw, tt.now)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("as a %s: %v, want %q", tt.now, err, tt.want)
		}
	}
}

func TestAnUpdateKeepsWhatWasThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "journals", "g.json")
	old := flow.New("g")
	flow.Add(old, flow.Task[first]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (first, error) { return first{}, nil }),
	})
	GoldenJournal(t, old, file, true)
	was, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	today := flow.New("g")
	flow.Add(today, flow.Task[grown]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (grown, error) { return grown{}, nil }),
	})
	flow.Add(today, flow.Task[first]{
		Name: "b",
		Run:  flow.Do(func(context.Context, flow.Say) (first, error) { return first{}, nil }),
	})
	GoldenJournal(t, today, file, true)
	GoldenJournal(t, old, filepath.Join(filepath.Dir(file), "other.json"), true)
	is, err := Read(file)
	if err != nil || len(is.Steps) != 2 || !strings.Contains(string(is.Steps["a"].Output), `"added"`) {
		t.Fatalf("%v: %+v", err, is.Steps)
	}
	if err := restores(was.Steps["a"].Output, reflect.TypeFor[grown]()); err != nil {
		t.Error(err)
	}
}
