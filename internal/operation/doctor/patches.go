package doctor

import (
	"context"
	"slices"

	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/gendata"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
)

// patches reports what is wrong with the patches, and whether the machinery inside this command can judge them.
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
	if !d.machineryKnows() {
		return unknown("read Talos's notes of changes between the two",
			"%d patches fit the machinery of Talos %s, which is inside this command; whether they fit %s is not known", total,
			gendata.VersionTag, d.cfg.TalosVersion)
	}
	return ok("Talos's own machinery accepts %d patches, and the whole configuration that they result in", total)
}

// machineryKnows reports whether the machinery inside this command can judge the patches for the configured Talos. It
// makes the configuration of each earlier minor version, too, but takes fields that came later: only the patches inside
// this command are known to have none.
func (d *Doctor) machineryKnows() bool {
	is, err := machineconfig.ParseContractFromVersion(d.cfg.TalosVersion)
	if err != nil {
		return false
	}
	inside, err := machineconfig.ParseContractFromVersion(gendata.VersionTag)
	if err != nil || is.Greater(inside) {
		return false
	}
	s := d.sources
	own := s.Cluster.Own || s.WorkerPool.Own || s.OidcPatch.Own || len(s.Added) > 0 ||
		slices.ContainsFunc(d.cfg.Workers, func(p config.WorkerPool) bool { return len(p.Patches) > 0 })
	return !own || !inside.Greater(is)
}
