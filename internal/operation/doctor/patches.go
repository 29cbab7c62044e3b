package doctor

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/gendata"

	"github.com/slipway-k8s/slipway/internal/cluster/checks"
)

// patches reports what checkPatches finds, and whether the machinery inside this command is the configured Talos's.
func (d *Doctor) patches(context.Context) Finding {
	objects, err := checks.Rendered(d.cfg, d.sources)
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	if wrong := checks.Patches(d.cfg, d.sources, objects); len(wrong) > 0 {
		return mistake(wrong[0])
	}
	total := 0
	for _, p := range checks.Patched(objects) {
		all, _ := p.Patches()
		total += len(all)
	}
	if minor(d.cfg.TalosVersion) != minor(gendata.VersionTag) {
		return unknown("read Talos's notes of changes between the two",
			"%d patches fit the machinery of Talos %s, which is inside this command; whether they fit %s is not known", total,
			gendata.VersionTag, d.cfg.TalosVersion)
	}
	return ok("Talos's own machinery accepts %d patches, and the whole configuration that they result in", total)
}

// minor is "v1.12" of "v1.12.2".
func minor(version string) string { return version[:max(0, strings.LastIndex(version, "."))] }
