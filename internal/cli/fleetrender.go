package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetRenderCommand(c *call) *cobra.Command {
	return c.command("render [FILE]", "", "print the manifests of a Job that applies the fleet, to be kept in Git",
		func(ctx context.Context, c *call) error {
			m, err := operations.Render(ctx, fleetRequest(c, 0))
			if err != nil {
				return err
			}
			return printFleetManifests(c.stdout, m)
		})
}

func printFleetManifests(out io.Writer, m operations.Manifests) error {
	fmt.Fprintf(out, "# Fleet %s: a Job that applies it. These Secrets of namespace %s (and the key in each) are not "+
		"here:\n", m.Fleet, m.Namespace)
	for _, name := range m.Secrets {
		fmt.Fprintf(out, "#   %s\n", name)
	}
	for _, o := range m.Objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", data)
	}
	return nil
}
