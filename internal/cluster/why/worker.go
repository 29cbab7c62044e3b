package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// nodeWithin is longer than a worker takes from its Machine to its node.
const nodeWithin = 5 * time.Minute

// workers are the machines that are not of the control plane.
func (s Situation) workers() []member {
	return slices.DeleteFunc(s.machines(), func(m member) bool { return m.controlPlane() })
}

// isNode tells that Cluster API knows the node of a machine that stays.
func (m member) isNode() bool {
	return m.machine.GetDeletionTimestamp() == nil && capi.Text(m.machine, "status", "nodeRef", "name") != ""
}

// workersStage is how far the workers are of a cluster whose control plane is complete; empty: each is a node.
func (s Situation) workersStage() (what, missing string) {
	workers := s.workers()
	nodes := 0
	for _, m := range workers {
		if m.isNode() {
			nodes++
		}
	}
	if nodes == len(workers) {
		return "", ""
	}
	return "the workers", fmt.Sprintf("%d of %d are nodes", nodes, len(workers))
}

// blameWorkers says what each worker waits for. None of it ends a wait for the control plane, which does not need them,
// and Cluster API replaces a worker; see TerminalForWorkers.
func (s Situation) blameWorkers(found *findings) {
	if !capi.Truth(s.ControlPlane, "status", "initialized") {
		return // each of them waits for that
	}
	for _, m := range s.workers() {
		if m.isNode() {
			continue
		}
		f := s.worker(m)
		f.Who, f.Terminal, f.weight = []string{m.name}, false, min(f.weight, weightTrouble)
		found.add(f)
	}
}

func (s Situation) worker(m member) Finding {
	if m.machine.GetDeletionTimestamp() != nil {
		return s.deleting(m)
	}
	if m.server == nil {
		return Finding{What: "Cluster API is creating it", weight: weightNormal}
	}
	if why := failure(m.server); why != "" {
		return Finding{What: "is given up (" + why + "); the pool's MachineHealthCheck has another one created",
			weight: weightTrouble}
	}
	if c, ok := worst(complaints(m.config)); ok && c.reason == configurationFailed {
		return Finding{What: "its machine configuration cannot be generated: " + briefly(c.message), weight: weightTrouble,
			Do: "correct the pool's patches in bootstrap.yaml or those in manifests/worker-pool.yaml, then run again"}
	}
	if f, ok := s.failedAction(m); ok {
		f.Do = "if it does not come up, the pool's MachineHealthCheck replaces it"
		return f
	}
	if c, ok := worst(complaints(m.server)); ok &&
		(m.state != running || c.severity == "Error" || c.severity == "Warning") {
		return s.workerComplaint(m, c)
	}
	if m.state == running && s.At.Sub(m.machine.GetCreationTimestamp().Time) >= nodeWithin {
		return Finding{
			What: "its Machine is more than 5 minutes old and its server runs, but it is not a node", weight: weightTrouble,
			Do: "its console at Hetzner shows what Talos does; the pool's MachineHealthCheck replaces it when its " +
				"nodeStartupTimeout, 20 minutes in the built-in manifest, has passed"}
	}
	if m.state == running {
		return Finding{What: "its server runs, and it is no node yet", weight: weightNormal}
	}
	f, _ := s.booting(m)
	return f
}

// workerComplaint says a condition of CAPH's, with what the operator can do about it in a worker pool.
func (s Situation) workerComplaint(m member, c condition) Finding {
	if s.Images != nil && s.Images.Name != capi.Text(m.server, "spec", "imageName") {
		s.Images = nil // of other servers
	}
	f := s.translate(m.server, c)
	f.What = strings.Replace(f.What, runOrders, "the pool's MachineHealthCheck replaces it, as it becomes no node", 1)
	switch c.reason {
	case "ImageNotFound":
		f.Do = "the target image creates it, unless it is an image of the pool's own: then give the snapshot the label " +
			"caph-image-name with this name, or correct the pool's image, and run again"
	case "InstanceHasNonExistingPlacementGroup":
		f.What = fmt.Sprintf("its placement group %s does not exist yet (CAPH looks again within %s)",
			capi.Text(m.server, "spec", "placementGroupName"), spoken(impossibleAgain))
		f.Do = "if it stays, a run lists it in the HetznerCluster, from which CAPH creates it"
	case "ServerTypeNotFound":
		f.Do = "choose another serverType for the pool"
	case "SSHKeyNotFound":
		f.Do = "correct manifests/worker-pool.yaml, then run again"
	}
	switch codeOf(c.message) {
	case "resource_unavailable", "placement_error":
		f.Do = "wait, or give the pool another serverType or location, and run again with --yes"
	case "invalid_input":
		f.Do = "correct manifests/worker-pool.yaml or the pool's configuration, then run again"
	}
	return f
}
