package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// openAPI is as much of an OpenAPI schema as the comparison needs.
type openAPI struct {
	Type                 string             `json:"type"`
	Properties           map[string]openAPI `json:"properties"`
	Items                *openAPI           `json:"items"`
	AdditionalProperties *openAPI           `json:"additionalProperties"`
	Required             []string           `json:"required"`
}

var kinds = map[string]reflect.Type{
	"hetznerclusters":        reflect.TypeFor[HetznerCluster](),
	"hcloudmachines":         reflect.TypeFor[HCloudMachine](),
	"hcloudmachinetemplates": reflect.TypeFor[HCloudMachineTemplate](),
}

// TestFields holds every field against the schemas of the CRDs: those that the lab installs, and the original's. A
// field that they lack has to be one of v1.1's schemas.
func TestFields(t *testing.T) {
	var newer map[string]openAPI
	since := readCRD(t, filepath.Join("..", "..", "repository", "caph", "since-v1.1.yaml"))
	if err := yaml.Unmarshal(since, &newer); err != nil {
		t.Fatal(err)
	}
	for folder, ending := range map[string]string{"caph": ".yaml", "testdata/caph": ".yaml.gz"} {
		for name, kind := range kinds {
			t.Run(folder+"/"+name, func(t *testing.T) {
				data := readCRD(t, filepath.Join("..", "..", "repository", folder, name+ending))
				var crd struct {
					Spec struct {
						Versions []struct {
							Name   string
							Schema struct{ OpenAPIV3Schema openAPI }
						}
					}
				}
				if err := yaml.Unmarshal(data, &crd); err != nil {
					t.Fatal(err)
				}
				if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != GroupVersion.Version {
					t.Fatalf("versions: %+v", crd.Spec.Versions)
				}
				root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
				for _, part := range []string{"Spec", "Status"} {
					field, _ := kind.FieldByName(part)
					path := strings.ToLower(part)
					compare(t, path, field.Type, root.Properties[path], newer[name].Properties[path])
				}
			})
		}
	}
}

// readCRD reads a file that is compressed or not.
func readCRD(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(path) != ".gz" {
		return data
	}
	in, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(in); err != nil {
		t.Fatal(err)
	}
	return data
}

// compare walks a type and a schema: the same fields on both sides, of the same JSON
// types, and what is required always written. The type may have fields of the newer schema, too.
func compare(t *testing.T, path string, goType reflect.Type, want, newer openAPI) {
	t.Helper()
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if goType == reflect.TypeFor[resource.Quantity]() || goType == reflect.TypeFor[metav1.Time]() {
		return
	}
	kind := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Bool: "boolean",
		reflect.Int:  "integer", reflect.Int32: "integer", reflect.Int64: "integer",
	}[goType.Kind()]
	if kind != want.Type {
		t.Errorf("%s is a %s here, %q in the schema", path, goType, want.Type)
		return
	}
	switch goType.Kind() {
	case reflect.Slice:
		compare(t, path+"[]", goType.Elem(), *want.Items, openAPI{})
	case reflect.Map:
		compare(t, path+"{}", goType.Elem(), *want.AdditionalProperties, openAPI{})
	case reflect.Struct:
		here := map[string]bool{}
		for i := range goType.NumField() {
			field := goType.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			here[name] = true
			below, ok := want.Properties[name]
			if !ok {
				below, ok = newer.Properties[name]
			}
			if !ok {
				t.Errorf("%s.%s is not in the schema", path, name)
				continue
			}
			compare(t, path+"."+name, field.Type, below, newer.Properties[name])
			for _, required := range want.Required {
				if required == name && strings.Contains(options, "omitempty") {
					t.Errorf("%s.%s is required, but left out when empty", path, name)
				}
			}
		}
		for name := range want.Properties {
			if !here[name] {
				t.Errorf("%s.%s of the schema has no field", path, name)
			}
		}
	}
}

// TestDeepCopy fills every field, copies, and changes every field of the copy: the original must stay as it was.
func TestDeepCopy(t *testing.T) {
	for _, object := range []runtime.Object{
		&HetznerCluster{}, &HetznerClusterList{}, &HCloudMachine{}, &HCloudMachineList{}, &HCloudMachineTemplate{},
		&HCloudMachineTemplateList{},
	} {
		t.Run(reflect.TypeOf(object).Elem().Name(), func(t *testing.T) {
			fill(reflect.ValueOf(object), 1)
			before := asJSON(t, object)
			clone := object.DeepCopyObject()
			if got := asJSON(t, clone); got != before {
				t.Fatalf("the copy differs:\n%s\n%s", before, got)
			}
			fill(reflect.ValueOf(clone), 2)
			if asJSON(t, clone) == before {
				t.Fatal("the copy did not change")
			}
			if after := asJSON(t, object); after != before {
				t.Errorf("the copy shares memory with the original:\n%s\n%s", before, after)
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fill sets everything below v to values made of n, in place where something is there already.
func fill(v reflect.Value, n int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), n)
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[metav1.Time]():
			v.Set(reflect.ValueOf(metav1.Unix(n, 0)))
			return
		case reflect.TypeFor[resource.Quantity]():
			v.Set(reflect.ValueOf(*resource.NewQuantity(n, resource.DecimalSI)))
			return
		case reflect.TypeFor[metav1.FieldsV1]():
			v.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte("{}")}))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		fill(v.Index(0), n)
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, n)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString(string(rune('a' + n)))
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(n)
	}
}
