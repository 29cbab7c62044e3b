package environment

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Kubernetes is a folder with Kubernetes programs, for servers of a version's minor.
type Kubernetes struct {
	For string `json:"for"` // "v1.33.13"
	Bin string `json:"bin"`
}

// KubernetesSet says which version servers of a version's minor run.
type KubernetesSet struct {
	For  string `json:"for"`
	Runs string `json:"runs"`
}

// addKubernetes has servers of a version that start from now on run the programs of a folder.
func (lab *Lab) addKubernetes(k Kubernetes) error {
	if err := lab.held.Hold(k.Bin); err != nil {
		return err
	}
	return lab.kubernetes.Add(k.For, k.Bin)
}

// serveKubernetes adds programs to the running lab.
func (lab *Lab) serveKubernetes(r *http.Request) (any, error) {
	var k Kubernetes
	if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
		return nil, control.BadRequest(fmt.Errorf("read the request: %w", err))
	}
	if err := lab.addKubernetes(k); err != nil {
		return nil, control.BadRequest(err)
	}
	lab.cfg.Log.Info("programs of Kubernetes were added", "for", k.For, "folder", k.Bin)
	return lab.info(), nil
}

func (lab *Lab) kubernetesSets() (sets []KubernetesSet) {
	for _, s := range lab.kubernetes.List() {
		sets = append(sets, KubernetesSet{For: s.For, Runs: s.Version()})
	}
	return sets
}

// kubernetesParts describes the programs that servers run besides those in the lab's folder of programs.
func (lab *Lab) kubernetesParts() (parts []Part) {
	for _, s := range lab.kubernetes.List()[1:] {
		if s.StandsInFor(s.For) {
			parts = append(parts, Part{"Kubernetes " + s.For, kubelet.StandIn, "servers of its minor run " + s.Version() +
				": the lab has no programs of " + s.For})
			continue
		}
		parts = append(parts, Part{"Kubernetes " + s.Version(), kubelet.Real,
			"kube-apiserver, kube-controller-manager, kube-scheduler of servers of this minor: " + s.Programs[0].Origin() +
				", unmodified"})
	}
	return parts
}
