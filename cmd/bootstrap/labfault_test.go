package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseFault(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "kubeconfig"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"apiserver-restart cluster=k8s for=2s seed=9007199254740993":   `{"cluster":"k8s","for":"2s","kind":"apiserver-restart","seed":9007199254740993}`,
		"error probability=0.5 status=503":                             `{"kind":"error","probability":0.5,"status":503}`,
		"expired-kubeconfig cluster=k8s file=kubeconfig":               `{"cluster":"k8s","file":"` + state + `/kubeconfig","kind":"expired-kubeconfig"}`,
		"expired-kubeconfig cluster=k8s file=" + state + "/kubeconfig": `{"cluster":"k8s","file":"` + state + `/kubeconfig","kind":"expired-kubeconfig"}`,
	} {
		got, err := parseFault(strings.Fields(words), state)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := json.Marshal(got); err != nil || string(data) != want {
			t.Errorf("%s: %s, %v", words, data, err)
		}
	}
	for words, says := range map[string]string{
		"error status=many":             "status=many",
		"error status=-1":               "status=-1",
		"rate-limit delay=5":            "delay=5",
		"error pth=/servers":            "did you mean path?",
		"error /servers":                `"/servers" is not key=value`,
		"error path=":                   "path has no value",
		"error path=/a path=/b":         "path is given twice",
		"error probability=certain":     "probability=certain",
		"management-away path=/servers": "it takes cluster, for",
		"slow-boot server=cp-*":         "needs delay=…; it takes delay (needed), server, ",
		"gremlins":                      "there are error, rate-limit",
		"eror":                          "did you mean error?",
		"expired-kubeconfig cluster=k8s file=missing": "in the state folder " + state,
	} {
		_, err := parseFault(strings.Fields(words), state)
		if _, usage := errors.AsType[*usageError](err); !usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", words, err, says)
		}
	}
	if _, err := parseFault([]string{"management-away", "path=/x"}, state); err == nil || strings.Contains(err.Error(), "serverType") {
		t.Errorf("keys of other kinds are named: %v", err)
	}
}

// The table of kinds is the lab's, which is another module.
func TestFaultKindsAreTheLabs(t *testing.T) {
	constants := map[string]string{}
	fields := map[string][2][]string{} // constant → needs, takes
	var shared []string
	texts := func(e ast.Expr) (all []string) { // of a list, an append to one, or the shared one
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, text)
			case *ast.Ident:
				if n.Name == "requestFields" {
					all = append(all, shared...)
				}
			}
			return true
		})
		return all
	}
	var table *ast.CompositeLit
	for _, path := range []string{"../../lab/cloud/faults.go", "../../lab/world/faults.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			general, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, s := range general.Specs {
				v, is := s.(*ast.ValueSpec)
				switch {
				case !is || len(v.Values) != 1:
				case strings.HasPrefix(v.Names[0].Name, "Fault"):
					constants[v.Names[0].Name] = strings.Join(texts(v.Values[0]), "")
				case v.Names[0].Name == "requestFields":
					shared = texts(v.Values[0])
				case v.Names[0].Name == "faultFields":
					table, _ = v.Values[0].(*ast.CompositeLit)
				}
			}
		}
	}
	if table == nil || len(shared) == 0 {
		t.Fatal("the lab's table of faults is not where it was")
	}
	for _, e := range table.Elts {
		pair := e.(*ast.KeyValueExpr)
		name := ""
		switch key := pair.Key.(type) {
		case *ast.Ident:
			name = key.Name
		case *ast.SelectorExpr:
			name = key.Sel.Name
		}
		var both [2][]string
		for _, f := range pair.Value.(*ast.CompositeLit).Elts {
			field := f.(*ast.KeyValueExpr)
			both[map[string]int{"needs": 0, "takes": 1}[field.Key.(*ast.Ident).Name]] = texts(field.Value)
		}
		fields[constants[name]] = both
	}
	if len(fields) != len(faultKinds()) {
		t.Errorf("the lab has %d kinds, the command %d", len(fields), len(faultKinds()))
	}
	for _, k := range faultKinds() {
		sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
		if lab := fields[k.name]; !slices.Equal(sorted(lab[0]), sorted(k.needs)) || !slices.Equal(sorted(lab[1]), sorted(k.takes)) {
			t.Errorf("%s: the lab has %v, the command %v and %v", k.name, lab, k.needs, k.takes)
		}
		for _, key := range k.keys() {
			if faultKeys()[key].doc == "" {
				t.Errorf("%s of %s is not explained", key, k.name)
			}
		}
	}
}

// labCommand runs a command on the fake lab's folder.
func (f *fakeLab) command(t *testing.T, args ...string) ran {
	t.Helper()
	return execute(t, t.Context(), t.TempDir(), "", append(args, "--state-dir", filepath.Dir(f.dir))...)
}

func TestLabFault(t *testing.T) {
	f := newFakeLab(t)
	r := f.command(t, "lab", "fault", "add", "error", "path=/servers/*", "times=2", "for=30s")
	if r.code != exitDone || !strings.Contains(r.stdout, "fault 1: error for=30s path=/servers/* times=2") {
		t.Errorf("add: %+v", r)
	}
	if want := `{"for":"30s","kind":"error","path":"/servers/*","times":2}`; !slices.Contains(f.asked, "POST /v1/faults") || string(f.faults[1]) != want {
		t.Errorf("the lab was told %s of %v", f.faults[1], f.asked)
	}
	if r := f.command(t, "lab", "fault", "list"); r.code != exitDone || !strings.Contains(r.stdout, "error for=30s path=/servers/* times=2  3 ") {
		t.Errorf("list: %+v", r)
	}
	r = f.command(t, "lab", "fault", "list", "--output", "json")
	var list struct{ Faults []struct{ ID int } }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Faults) != 1 || list.Faults[0].ID != 1 {
		t.Errorf("list in JSON: %+v, %v", r, err)
	}
	if r := f.command(t, "lab", "fault", "remove", "1"); r.code != exitDone || len(f.faults) != 0 {
		t.Errorf("remove: %+v", r)
	}
	if r := f.command(t, "lab", "fault", "list"); r.code != exitDone || !strings.Contains(r.stdout, "no fault is in force") {
		t.Errorf("list of none: %+v", r)
	}
	for args, says := range map[string]string{
		"add":                 "lab fault add needs KIND",
		"add gremlins":        "there is no fault",
		"add error status=no": "status=no",
		"remove":              "lab fault remove needs ID",
		"remove one":          `"one" is not a fault's number`,
		"remove 7":            "there is no such fault",
		"rm 7":                `lab fault cannot "rm"`,
		"":                    "lab fault takes one of: add, list, remove",
	} {
		if r := f.command(t, append([]string{"lab", "fault"}, strings.Fields(args)...)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("lab fault %s: %+v, want %s", args, r, says)
		}
	}
	f.server.Close()
	if r := f.command(t, "lab", "fault", "list"); r.code != exitFailed || !strings.Contains(r.stderr, "no lab is up") {
		t.Errorf("of a lab that is down: %+v", r)
	}
}

// serveFaults plays the lab's part.
func (f *fakeLab) serveFaults(r *http.Request, id int) (status int, answer any) {
	force := func(id int) map[string]any {
		fields := map[string]any{}
		_ = json.Unmarshal(f.faults[id], &fields) // it was read before
		fields["id"], fields["hits"], fields["since"] = id, 3, time.Now()
		return fields
	}
	switch r.Method {
	case http.MethodPost:
		var told map[string]any
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil || told["kind"] == "gremlins" {
			return http.StatusBadRequest, map[string]string{"error": "there is no fault gremlins"}
		}
		data, err := json.Marshal(told)
		if err != nil {
			return http.StatusBadRequest, map[string]string{"error": err.Error()}
		}
		id := len(f.faults) + 1
		f.faults[id] = data
		return http.StatusOK, force(id)
	case http.MethodDelete:
		if f.faults[id] == nil {
			return http.StatusNotFound, map[string]string{"error": "there is no such fault in force"}
		}
		delete(f.faults, id)
		return http.StatusOK, struct{}{}
	default:
		list := []any{}
		for id := range f.faults {
			list = append(list, force(id))
		}
		return http.StatusOK, map[string]any{"faults": list}
	}
}
