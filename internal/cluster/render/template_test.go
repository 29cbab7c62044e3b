package render

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
)

// A template under another name, of the content of the manifest, is the live one.
func TestTemplateKeepsItsName(t *testing.T) {
	cfg := config.Defaults()
	sources, err := Read(VariablesOf(cfg), "")
	if err != nil {
		t.Fatal(err)
	}
	v := MadeUpVariables(cfg, sources)
	rendered := func(p Placement) (template string, control *unstructured.Unstructured) {
		t.Helper()
		r, err := Manifests(cfg, sources, v.Placed(p))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range r.Now {
			if o.GetKind() == "TalosControlPlane" {
				control = o
			}
		}
		return r.Template, control
	}
	named, _ := rendered(Placement{})
	hash := named[len(named)-TemplateHashLength:]
	for name, c := range map[string]struct {
		live Placement
		want string
	}{"the same content": {Placement{Template: "servers", TemplateHash: hash}, "servers"},
		"another content": {Placement{Template: "servers", TemplateHash: "00000"}, named}} {
		is, control := rendered(c.live)
		refers, _, _ := unstructured.NestedString(control.Object, "spec", "infrastructureTemplate", "name")
		if is != c.want || refers != c.want {
			t.Errorf("%s: it is called %s, and the control plane refers to %s", name, is, refers)
		}
	}
}
