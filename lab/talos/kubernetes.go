package talos

import (
	"fmt"
	"slices"
	"strings"
)

// chooseKubernetes chooses the programs of the control plane by the tags of their images, as a real server pulls them:
// it returns the folder of each. An error is what a failed pull would be.
func (y *system) chooseKubernetes() (folders map[string]string, err error) {
	cluster := y.config.Cluster()
	folders = map[string]string{}
	var run []string
	for _, p := range []struct{ file, field, image string }{
		{"kube-apiserver", "apiServer", cluster.APIServer().Image()},
		{"kube-controller-manager", "controllerManager", cluster.ControllerManager().Image()},
		{"kube-scheduler", "scheduler", cluster.Scheduler().Image()},
	} {
		tag, err := imageTag(p.image)
		if err != nil {
			return nil, fmt.Errorf("cluster.%s.image: %w", p.field, err)
		}
		set, err := y.talos.config.Kubernetes.Choose(tag)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.image, err)
		}
		folders[p.file] = set.Bin
		text := set.Version()
		if text != tag {
			text += " for " + tag
		}
		if run = append(run, text); set.StandsInFor(tag) {
			y.note(p.file, "is "+text+", another minor: the lab has no programs of the configured one")
		} else {
			y.note(p.file, "")
		}
	}
	y.mu.Lock()
	y.kubernetes = strings.Join(slices.Compact(run), ", ")
	y.mu.Unlock()
	return folders, nil
}
