package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/programs"
)

// add has those who ask for a version from now on run the programs of a folder.
func (lab *Lab) add(sets *programs.Sets, given programs.Given) error {
	if err := lab.held.Hold(given.Bin); err != nil {
		return err
	}
	if err := sets.Add(given.For, given.Bin); err != nil {
		return err
	}
	lab.cfg.Log.Info("programs were added", "of", sets.Kind().Name, "for", given.For, "folder", given.Bin)
	return nil
}

// servePrograms adds programs to the running lab; then has what follows from them done.
func (lab *Lab) servePrograms(sets *programs.Sets, then func(context.Context) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var given programs.Given
		if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
			return nil, control.BadRequest(fmt.Errorf("read the request: %w", err))
		}
		if err := lab.add(sets, given); err != nil {
			return nil, control.BadRequest(err)
		}
		if err := then(context.WithoutCancel(r.Context())); err != nil {
			return nil, err
		}
		return lab.info(), nil
	}
}

// setParts describes the sets of a kind: each program of the first one under its name, the others as a whole. whose
// says who chooses from them.
func setParts(all *programs.Sets, whose string, names ...string) (parts []Part) {
	kind := all.Kind()
	for i, s := range all.List() {
		note, fidelity := "unmodified", kubelet.Real
		if s.StandsInFor(s.For) {
			note, fidelity = fmt.Sprintf("%s of the minor of %s run it: the lab has no programs of that", whose, s.For),
				kubelet.StandIn
		}
		if i > 0 {
			parts = append(parts, Part{kind.Name + " " + s.Version(), fidelity, fmt.Sprintf("%s of %s of this minor: %s, %s",
				strings.Join(kind.Files, ", "), whose, s.Programs[0].Origin(), note)})
			continue
		}
		for j, p := range s.Programs {
			parts = append(parts, Part{names[j], fidelity, p.Origin() + ", " + note})
		}
	}
	return parts
}
