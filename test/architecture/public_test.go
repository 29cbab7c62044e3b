package architecture

import (
	"encoding/json"
	"errors"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPublicTypesOnly holds that no exported identifier of a public package mentions a type of an internal one: a
// user of the library could neither name it nor read its documentation. The fields of an unexported embedded struct
// (those of platform.Tools) do not count: the documentation does not show them.
func TestPublicTypesOnly(t *testing.T) {
	exports, public := exportData(t)
	packages := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range public {
		p, err := packages.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			object := p.Scope().Lookup(name)
			if !object.Exported() {
				continue
			}
			for _, m := range mentions(object) {
				identifier := strings.TrimPrefix(path, module+"/") + "." + m.identifier
				t.Errorf("%s mentions %s", identifier, m.internal)
			}
		}
	}
}

// exportData is the file with the export data of each package that the module needs, and which of its own packages
// another module can import.
func exportData(t *testing.T) (exports map[string]string, public []string) {
	t.Helper()
	packages(t) // go test runs this again when a folder of the module has changed
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Name,Export", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports = map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Name, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return exports, public
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		name, own := strings.CutPrefix(p.ImportPath, module+"/")
		first, _, _ := strings.Cut(name, "/")
		own = own || p.ImportPath == module
		if own && p.Export != "" && p.Name != "main" && first != "internal" && first != "test" {
			public = append(public, p.ImportPath)
		}
	}
}

func isInternal(path string) bool { return strings.HasPrefix(path, module+"/internal/") }

// mention is an identifier, and the internal type that it mentions.
type mention struct{ identifier, internal string }

// mentions are the internal types that an exported object mentions.
func mentions(object types.Object) []mention {
	m := mentioning{at: object.Name()}
	name, declares := object.(*types.TypeName)
	if !declares {
		m.look(object.Type())
		return m.found
	}
	if alias, ok := name.Type().(*types.Alias); ok {
		m.look(alias.Rhs())
		return m.found
	}
	m.declared(name.Type().(*types.Named))
	return m.found
}

// mentioning walks through the types that an exported identifier shows to a user.
type mentioning struct {
	at    string // the identifier that is looked at
	seen  map[types.Type]bool
	found []mention
}

// declared looks at what a named type of a public package shows: its underlying type and its exported methods.
func (m *mentioning) declared(named *types.Named) {
	m.look(named.Underlying())
	for method := range named.Methods() {
		m.member(method)
	}
}

func (m *mentioning) member(object types.Object) {
	if object.Exported() {
		inner := mentioning{at: m.at + "." + object.Name(), seen: m.seen}
		inner.look(object.Type())
		m.found = append(m.found, inner.found...)
	}
}

func (m *mentioning) look(typ types.Type) {
	switch typ := typ.(type) {
	case *types.Named:
		m.named(typ)
	case *types.Alias:
		m.look(types.Unalias(typ))
	case *types.Struct:
		for field := range typ.Fields() {
			m.member(field)
		}
	case *types.Interface:
		for method := range typ.Methods() {
			m.member(method)
		}
	case *types.Signature:
		m.look(typ.Params())
		m.look(typ.Results())
	case *types.Tuple:
		for v := range typ.Variables() {
			m.look(v.Type())
		}
	case *types.Map:
		m.look(typ.Key())
		m.look(typ.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		m.look(typ.Elem())
	}
}

func (m *mentioning) named(named *types.Named) {
	for argument := range named.TypeArgs().Types() {
		m.look(argument)
	}
	object := named.Obj()
	if object.Pkg() == nil || !strings.HasPrefix(object.Pkg().Path(), module) {
		return
	}
	if isInternal(object.Pkg().Path()) {
		m.found = append(m.found, mention{m.at, strings.TrimPrefix(object.Pkg().Path(), module+"/") + "." + object.Name()})
		return
	}
	if object.Exported() || m.seen[named] { // an exported one is looked at on its own
		return
	}
	if m.seen == nil {
		m.seen = map[types.Type]bool{}
	}
	m.seen[named] = true
	m.declared(named)
}
