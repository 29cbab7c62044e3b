package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fleet/objects"
	"github.com/slipway-k8s/slipway/internal/fleet/rollout"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// runFleetRender prints what apply writes, but for Secrets. It asks nothing of anything.
func runFleetRender(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	if a.Options.Lab {
		return usage.Errorf("fleet render prints manifests for Git, and those of a rehearsal are of no use there: leave --lab away")
	}
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return err
	}
	selected, err := f.selected(o.Clusters)
	if err != nil {
		return err
	}
	clusters, err := f.check(ctx, selected)
	if err != nil {
		return err
	}
	changes, err := f.changes(clusters)
	if err != nil {
		return err
	}
	all := objects.Shared(f.Namespace)
	secrets := map[string]bool{objects.IdentitySecret + " (" + objects.IdentitySecretKey + ")": true}
	for _, change := range changes {
		files, err := change.ConfigMap()
		if err != nil {
			return err
		}
		all = append(all, files, change.Job())
		secrets[change.Token+" ("+objects.TokenSecretKey+")"] = true
	}
	p := rollout.Preparation{Changes: changes}
	r := rollout.Rollout{Fleet: f.Name, Namespace: f.Namespace, Action: objects.Apply, MaxParallel: f.MaxParallel,
		MaxFailures: f.MaxFailures, Canary: f.Canary, Queue: f.Queue, Entries: p.Entries()}
	state, err := r.ConfigMap()
	if err != nil {
		return err
	}
	image, err := f.image()
	if err != nil {
		return err
	}
	all = append(all, state, objects.Coordinator(f.Name, f.Namespace, image, p.Revision(),
		f.Deadline*time.Duration(len(changes))))
	return printManifests(c, f, secrets, all)
}

func printManifests(c *console, f *openedFleet, secrets map[string]bool, all []client.Object) error {
	fmt.Fprintf(c.stdout, "# Fleet %s. The Jobs read these Secrets of namespace %s (and the key in each), which are not here:\n",
		f.Name, f.Namespace)
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		fmt.Fprintf(c.stdout, "#   %s\n", name)
	}
	for _, o := range all {
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "---\n%s", data)
	}
	return nil
}
