package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/internal/fleet"
	fleetoperations "github.com/slipway-k8s/slipway/internal/fleet/operations"
	"github.com/slipway-k8s/slipway/internal/operation/adopt"
	"github.com/slipway-k8s/slipway/internal/operation/dependencies"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/rotation"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/serve"
	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

func writeExitCodes(t *testing.T, w *strings.Builder) {
	t.Helper()
	w.WriteString("## Exit codes\n\n")
	var rows [][]string
	for _, c := range constants(t, ".", "Exit") {
		rows = append(rows, []string{c.value, c.comment})
	}
	table(w, []string{"code", "meaning"}, rows...)
	w.WriteString("`go run` passes no code but 0 and 1 on: a script builds the command first.\n\n")
}

// document is what a command prints with `--output json`.
type document struct {
	of    string // a sentence
	value any
}

func writeJSON(t *testing.T, w *strings.Builder) {
	t.Helper()
	w.WriteString("## JSON output\n\nWith `--output json` a run of steps prints one event a line and a summary as the " +
		"last line. " +
		"Commands that print one document are listed behind it. A field marked `?` is left out where it is empty. " +
		"Durations are in nanoseconds, times in RFC 3339.\n\n### Kinds of events\n\n")
	var rows [][]string
	for _, c := range constants(t, "../../flow", "", "EventKind") {
		rows = append(rows, []string{code(strings.Trim(c.value, `"`)), c.comment})
	}
	table(w, []string{"Output of `kind`", "meaning"}, rows...)
	r := jsonFields{t: t, names: map[reflect.Type]string{}, comments: map[string]map[string]string{}}
	for _, d := range []document{
		{"Events of a run", flow.Event{}},
		{"Summary of a run, its last line", operations.Summary{}},
		{"Output of `plan`, `--dry-run`", forecast.Forecast{}},
		{"Output of `status`", status.Report{}},
		{"Output of `scale --dry-run`", scale.Change{}},
		{"Output of `rotate ca --dry-run`", rotation.Forecast{}},
		{"Output of `restore --diagnose`", operations.Diagnosis{}},
		{"Output of `adopt`, before that of `plan`", adopt.Description{}},
		{"Output of `readopt --dry-run`", readoptPlan{}},
		{"Output of `recover-quorum --dry-run`", operations.QuorumForecast{}},
		{"Output of `drill`", drill.Report{}},
		{"Output of `backup verify`", operations.VerifiedBackup{}},
		{"Output of `doctor`", operations.Examination{}},
		{"Output of `graph`", graphDocument{}},
		{"Output of `effects`", effectList{}},
		{"Output of `serve`, its first line", serve.Serving{}},
		{"Output of `fleet plan`", fleetoperations.Forecast{}},
		{"Output of `fleet status`", fleetoperations.Report{}},
		{"Output of `fleet apply`, `fleet destroy` and `fleet advance`, a line for each change", fleet.ClusterStatus{}},
		{"Output of `report`", report.Made{}},
		{"Output of `report --list`", runList{}},
		{"Output of `config show`", settingsList{}},
		{"Output of `config files`", fileList{}},
		{"Output of `config files --out`", filesWritten{}},
		{"Output of `backup list`", operations.BackupList{}},
		{"Output of `image --packer`", packerCalls{}},
		{"Output of `deps audit`", dependencies.Report{}},
		{"Output of `deps graph`", dependencies.Graph{}},
		{"Output of `gitops init`", flux.Tree{}},
		{"Output of `leftovers`", leftovers{}},
		{"Output of `recover-releases`, its last line; of `recover-releases --dry-run`", releases.Report{}},
		{"Output of `destroy` before its events", destroyPlan{}},
		{"Output of `lab status` where no lab is up", labDown{}},
		{"Each line of `logs`", jsonLogLine{}},
		{"Output of `version`", versionReport{}},
	} {
		fmt.Fprintf(w, "### %s\n\n", strings.ReplaceAll(d.of, "`", ""))
		r.write(w, reflect.TypeOf(d.value))
	}
	w.WriteString("### Types in these\n\n")
	for len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		fmt.Fprintf(w, "#### %s\n\n", r.names[next])
		r.write(w, next)
	}
}

// jsonFields collects the fields of types and what the source says of them.
type jsonFields struct {
	t        *testing.T
	queue    []reflect.Type
	names    map[reflect.Type]string
	comments map[string]map[string]string // of a package: Type.Field to its comment
}

func (r *jsonFields) write(w *strings.Builder, typ reflect.Type) {
	var rows [][]string
	var add func(reflect.Type)
	add = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case f.Anonymous && name == "":
				add(f.Type)
			default:
				if name = code(cmp.Or(name, f.Name)); options != "" {
					name += " ?"
				}
				rows = append(rows, []string{name, r.typeOf(f.Type), r.comment(typ, f.Name)})
			}
		}
	}
	add(typ)
	table(w, []string{"field", "type", "meaning"}, rows...)
}

// typeOf is a type as JSON has it. A struct is written later, once.
func (r *jsonFields) typeOf(typ reflect.Type) string {
	marshaler := reflect.TypeFor[json.Marshaler]()
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		return "duration"
	case typ == reflect.TypeFor[time.Time]():
		return "time"
	case typ.Kind() == reflect.Pointer:
		return r.typeOf(typ.Elem())
	case typ.Implements(marshaler) || typ.Kind() == reflect.String:
		return "string"
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8:
		return "base64"
	case typ.Kind() == reflect.Slice:
		return "list of " + r.typeOf(typ.Elem())
	case typ.Kind() == reflect.Map:
		return "map of " + r.typeOf(typ.Elem())
	case typ.Kind() == reflect.Struct && typ.Name() == "":
		return "object"
	case typ.Kind() == reflect.Struct:
		return r.link(typ)
	case strings.HasPrefix(typ.Kind().String(), "float"):
		return "number"
	case strings.Contains(typ.Kind().String(), "int"):
		return "integer"
	}
	return typ.Kind().String()
}

// link is a link to a type, whose heading is its name, with the package in front where another type has that name.
func (r *jsonFields) link(typ reflect.Type) string {
	name := r.names[typ]
	if name == "" {
		name = upperFirst(typ.Name())
		for other, taken := range r.names {
			if taken == name && other != typ {
				name = upperFirst(strings.ReplaceAll(typ.String(), ".", " "))
			}
		}
		r.names[typ], r.queue = name, append(r.queue, typ)
	}
	return "[" + name + "](#" + headingAnchor(name) + ")"
}

// comment is what the source says of a field.
func (r *jsonFields) comment(typ reflect.Type, field string) string {
	path := typ.PkgPath()
	if path == "" {
		return ""
	}
	if r.comments[path] == nil {
		r.comments[path] = map[string]string{}
		for _, file := range sources(r.t, folderOf(r.t, path)) {
			ast.Inspect(file, func(n ast.Node) bool {
				spec, is := n.(*ast.TypeSpec)
				if !is {
					return true
				}
				if s, is := spec.Type.(*ast.StructType); is {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							r.comments[path][spec.Name.Name+"."+name.Name] = cmp.Or(f.Comment.Text(), f.Doc.Text())
						}
					}
				}
				return true
			})
		}
	}
	text := r.comments[path][typ.Name()+"."+field]
	for _, verb := range []string{"is", "are", "reports that", "reports", "tells that", "tells", "says"} {
		text = strings.TrimPrefix(text, field+" "+verb+" ")
	}
	return text
}

// folderOf is the folder of a package.
func folderOf(t *testing.T, path string) string {
	t.Helper()
	if rest, ours := strings.CutPrefix(path, "github.com/slipway-k8s/slipway/"); ours {
		return "../../" + rest
	}
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

// sources parses the files of a package, without its tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	for _, path := range goFiles(t, dir) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

type constant struct{ value, comment string }

// constants are those of a package whose names begin with a prefix, or that have a type.
func constants(t *testing.T, dir, prefix string, ofType ...string) (all []constant) {
	t.Helper()
	for _, file := range sources(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 {
				return true
			}
			typ, _ := spec.Type.(*ast.Ident)
			value, literal := spec.Values[0].(*ast.BasicLit)
			if !literal || prefix != "" && !strings.HasPrefix(spec.Names[0].Name, prefix) ||
				len(ofType) > 0 && (typ == nil || !slices.Contains(ofType, typ.Name)) {
				return true
			}
			all = append(all, constant{value.Value, strings.TrimSpace(spec.Comment.Text())})
			return true
		})
	}
	slices.SortStableFunc(all, func(a, b constant) int { // numbers by value; texts stay in the order of the source
		x, errX := strconv.Atoi(a.value)
		y, errY := strconv.Atoi(b.value)
		if errX != nil || errY != nil {
			return 0
		}
		return cmp.Compare(x, y)
	})
	return all
}

func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	return paths
}
