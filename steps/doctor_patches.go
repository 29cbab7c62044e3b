package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// patches reports what checkPatches finds, and whether the machinery inside this command is the configured Talos's.
func (d *Doctor) patches(context.Context) Finding {
	objects, err := renderedForChecks(d.b.cfg, d.b.sources)
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	if wrong := checkPatches(d.b.cfg, d.b.sources, objects); len(wrong) > 0 {
		return wrong[0].finding()
	}
	total := 0
	for _, p := range patchedOf(objects) {
		all, _, _ := unstructured.NestedStringSlice(p.object.Object, append(append([]string{}, p.path...), strategicPatches)...)
		total += len(all)
	}
	if minor(d.b.cfg.TalosVersion) != minor(gendata.VersionTag) {
		return unknown("read Talos's notes of changes between the two",
			"%d patches fit the machinery of Talos %s, which is inside this command; whether they fit %s is not known", total, gendata.VersionTag, d.b.cfg.TalosVersion)
	}
	return ok("Talos's own machinery takes %d patches, and the whole configuration that they make", total)
}

// minor is "v1.12" of "v1.12.2".
func minor(version string) string { return version[:max(0, strings.LastIndex(version, "."))] }

// overlay puts one tree over another, lists as a whole.
func overlay(into, from map[string]any) {
	for key, value := range from {
		child, isMap := value.(map[string]any)
		existing, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			overlay(existing, child)
			continue
		}
		into[key] = value
	}
}

// want is a value that the rest of the bootstrap counts on.
type want struct {
	path []string
	is   string
	why  string
}

func (w want) dotted() string { return strings.Join(w.path, ".") }

// controlPlaneWants are what the control plane's patches must come to.
func controlPlaneWants() []want {
	return []want{
		{[]string{"cluster", "network", "cni", "name"}, "none", "Cilium is installed in place of Talos's own network"},
		{[]string{"cluster", "proxy", "disabled"}, "true", "Cilium takes kube-proxy's place"},
		{[]string{"cluster", "externalCloudProvider", "enabled"}, "true", "the Hetzner CCM names the nodes' servers"},
		{[]string{"machine", "features", "kubernetesTalosAPIAccess", "enabled"}, "true", "the Talos CCM asks the Talos API"},
		{[]string{"machine", "kubelet", "extraArgs", "rotate-server-certificates"}, "true", "the Talos CCM approves the kubelets' certificates"},
	}
}

// unmetWant is a value that is not as it is wanted.
type unmetWant struct {
	want want
	is   string
}

func (u unmetWant) problem() string {
	return fmt.Sprintf("%s is %s, not %s: %s", u.want.dotted(), u.is, u.want.is, u.want.why)
}

// unmetOf is the first value that is not as it is wanted; nil: all are.
func unmetOf(values map[string]any, wants []want) *unmetWant {
	for _, w := range wants {
		got, found, err := unstructured.NestedFieldNoCopy(values, w.path...)
		if is := fmt.Sprint(got); err != nil || !found || is != w.is {
			if !found {
				is = "missing"
			}
			return &unmetWant{w, is}
		}
	}
	return nil
}

// unmet is the finding of the first value that is not as it is wanted; nil: all are.
func unmet(where string, values map[string]any, wants []want) *Finding {
	u := unmetOf(values, wants)
	if u == nil {
		return nil
	}
	f := failed("write "+u.want.dotted()+": "+u.want.is, "%s: %s", where, u.problem())
	return &f
}
