package repository

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"
)

// render renders a chart as "helm template <release> --namespace kube-system"
// does. Helm itself is no dependency of the lab; this is as much of its engine
// as the charts use.
func render(t *testing.T, chart, release, values string) ([]unstructured.Unstructured, error) {
	t.Helper()
	root := path.Join("charts", chart)
	read := func(name string) map[string]any {
		content, err := chartFiles.ReadFile(path.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		parsed := map[string]any{}
		if err := yaml.Unmarshal(content, &parsed); err != nil {
			t.Fatalf("%s of %s: %v", name, chart, err)
		}
		return parsed
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	metadata := read("Chart.yaml")
	data := map[string]any{
		"Values": coalesce(read("values.yaml"), given),
		"Chart": map[string]any{"Name": metadata["name"], "Version": metadata["version"],
			"AppVersion": metadata["appVersion"]},
		"Release":  map[string]any{"Name": release, "Namespace": "kube-system", "Service": "Helm"},
		"Template": map[string]any{"BasePath": "templates"},
	}

	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data any) (string, error) {
		var out strings.Builder
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = func(v any) (string, error) {
		out, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(out), "\n"), err
	}
	functions["tpl"] = func(text string, data any) (string, error) {
		var out strings.Builder
		inner, err := template.Must(all.Clone()).New("tpl").Parse(text)
		if err == nil {
			err = inner.Execute(&out, data)
		}
		return out.String(), err
	}
	functions["fail"] = func(message string) (string, error) { return "", errors.New(message) }
	all.Funcs(functions)

	files, err := fs.Glob(chartFiles, path.Join(root, "templates", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates of %s: %v", chart, err)
	}
	for _, file := range files {
		content, err := chartFiles.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := all.New("templates/" + path.Base(file)).Parse(string(content)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	for _, file := range files {
		if path.Ext(file) != ".yaml" {
			continue
		}
		out.WriteString("\n---\n")
		if err := all.ExecuteTemplate(&out, "templates/"+path.Base(file), data); err != nil {
			return nil, err
		}
	}
	if strings.Contains(out.String(), "<no value>") {
		t.Errorf("a template of %s uses a value that is not in values.yaml", chart)
	}
	objects, err := utilyaml.ToUnstructured(out.Bytes())
	if err != nil {
		t.Fatalf("%s renders no YAML: %v\n%s", chart, err, out.String())
	}
	return objects, nil
}

// coalesce lays values over defaults as Helm does: maps are merged, everything
// else is replaced.
func coalesce(defaults, values map[string]any) map[string]any {
	merged := maps.Clone(defaults)
	for key, value := range values {
		below, isMap := merged[key].(map[string]any)
		if over, ok := value.(map[string]any); ok && isMap {
			value = coalesce(below, over)
		}
		merged[key] = value
	}
	return merged
}

// find picks the object of a kind and name.
func find(t *testing.T, objects []unstructured.Unstructured, kind, name string) unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == name
	})
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	return objects[i]
}
