package environment

import (
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Of a mapped executable the status says only what is known: its path, and what it says it was built from.
func TestMappedParts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lab := &Lab{programs: []kubelet.Program{
		{Image: "example.org/mine", Exec: self, Fidelity: kubelet.Mapped},
		{Image: "example.org/script", Exec: "/usr/local/bin/script", Fidelity: kubelet.Mapped},
		{Image: "example.org/mine", Exec: "lab", Prefix: []string{"caph"}, Fidelity: kubelet.StandIn},
	}}
	for i, want := range []Part{
		{"mine", "mapped", self + ", built from github.com/slipway-k8s/slipway/lab devel"},
		{"script", "mapped", "/usr/local/bin/script"},
	} {
		p := lab.programs[i]
		if got := imagePart(p, builtFrom(p.Exec)); got.Name != want.Name || got.Fidelity != want.Fidelity ||
			!strings.HasPrefix(got.Detail, want.Detail) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := imagePart(kubelet.Program{Image: "example.org/etcd", Exec: "etcd", Fidelity: kubelet.Real}, "etcd v3"); got !=
		(Part{"etcd", "real", "etcd v3, unmodified"}) {
		t.Errorf("got %+v", got)
	}
	released := kubelet.Program{Image: "ghcr.io/syself/caph", Tag: "v1.0.7", Exec: self, Fidelity: kubelet.Real,
		Note: "from the image ghcr.io/syself/caph:v1.0.7@sha256:0, unmodified"}
	if got := imagePart(released, builtFrom(self)); got != (Part{"caph", "real", released.Note}) {
		t.Errorf("got %+v", got)
	}
}
