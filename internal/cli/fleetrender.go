package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// runFleetRender prints the manifests of a Job that applies the fleet inside its management cluster. It asks nothing of
// anything.
func runFleetRender(ctx context.Context, c *console, a arguments, _ fleetOptions) error {
	if a.Options.Lab {
		return usage.Errorf("fleet render prints manifests for Git, and those of a rehearsal are of no use there: run without --lab")
	}
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return err
	}
	if _, err := f.check(ctx, f.Clusters); err != nil {
		return err
	}
	secrets := map[string]bool{fleet.IdentitySecret + " (" + fleet.IdentitySecretKey + ")": true}
	for _, cluster := range f.Clusters {
		secret := f.Tokens[cluster.Token].Secret
		if secret == "" {
			return usage.Errorf("%s: token %s is read on this machine, and the Job in the management cluster has none of its files, "+
				"variables and programs: create a Secret with the key %s in namespace %s, and name it as secret: in tokens",
				f.Path(),
				cluster.Token, fleet.TokenSecretKey, f.Namespace)
		}
		secrets[secret+" ("+fleet.TokenSecretKey+")"] = true
	}
	files, err := f.files()
	if err != nil {
		return err
	}
	image, err := f.image()
	if err != nil {
		return err
	}
	if !strings.Contains(image, "@") {
		tell(c, "the Job, an administrator of the management cluster, takes the image %s by its tag: write image with its digest "+
			"(@sha256:…), so that whoever can change the tag does not change what runs", image)
	}
	config, job, err := fleet.Applier(f.Name, f.Namespace, image, files, f.Deadline*time.Duration(len(f.Clusters)))
	if err != nil {
		return &usage.Error{Err: err}
	}
	return printManifests(c, f, secrets, append(fleet.Shared(f.Namespace), config, job))
}

// files are the fleet's file and the operator's files.
func (f *openedFleet) files() (map[string][]byte, error) {
	data, err := os.ReadFile(f.Path())
	if err != nil {
		return nil, usage.Errorf("read the fleet: %w", err)
	}
	files := map[string][]byte{fleet.FleetFile: data}
	sources, err := render.Read(nil, f.overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	for _, s := range sources.All() {
		if s.Own {
			files[s.Path] = s.Data
		}
	}
	return files, nil
}

func printManifests(c *console, f *openedFleet, secrets map[string]bool, all []client.Object) error {
	fmt.Fprintf(c.stdout, "# Fleet %s: a Job that applies it. These Secrets of namespace %s (and the key in each) are not here:\n",
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
