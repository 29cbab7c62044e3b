package lab

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

func TestParseFault(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "kubeconfig"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"apiserver-restart cluster=k8s for=2s seed=9007199254740993": `{"cluster":"k8s","for":"2s","kind":"apiserver-restart","seed":9007199254740993}`,
		"error probability=0.5 status=503":                           `{"kind":"error","probability":0.5,"status":503}`,
		"expired-kubeconfig cluster=k8s file=kubeconfig": `{"cluster":"k8s","file":"` + state +
			`/kubeconfig","kind":"expired-kubeconfig"}`,
		"expired-kubeconfig cluster=k8s file=" + state + "/kubeconfig": `{"cluster":"k8s","file":"` + state +
			`/kubeconfig","kind":"expired-kubeconfig"}`,
	} {
		got, err := ParseFault(strings.Fields(words), state)
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
		_, err := ParseFault(strings.Fields(words), state)
		if _, usage := errors.AsType[*usage.Error](err); !usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", words, err, says)
		}
	}
	if _, err := ParseFault([]string{"management-away", "path=/x"}, state); err == nil ||
		strings.Contains(err.Error(), "serverType") {
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
	for _, path := range []string{"../../../lab/cloud/faults.go", "../../../lab/environment/faults.go"} {
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
	if len(fields) != len(FaultKinds()) {
		t.Errorf("the lab has %d kinds, the command %d", len(fields), len(FaultKinds()))
	}
	for _, k := range FaultKinds() {
		sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
		if lab := fields[k.Name]; !slices.Equal(sorted(lab[0]), sorted(k.needs)) ||
			!slices.Equal(sorted(lab[1]), sorted(k.takes)) {
			t.Errorf("%s: the lab has %v, the command %v and %v", k.Name, lab, k.needs, k.takes)
		}
		for _, key := range k.Keys() {
			if FaultKeys()[key].Doc == "" {
				t.Errorf("%s of %s is not explained", key, k.Name)
			}
		}
	}
}
