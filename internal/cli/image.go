package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/ensure/prune"
	"github.com/slipway-k8s/slipway/steps"
)

// packerCalls is what image --packer prints as JSON.
type packerCalls struct {
	Kind     string   `json:"kind"` // "packer"
	Commands []string `json:"commands"`
}

// runPacker prints the Packer call that makes what the step image would.
func runPacker(c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	commands, err := steps.PackerCommands(cfg.Config, cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if a.Options.Output == "json" {
		return ui.PrintJSONLine(c.stdout, packerCalls{"packer", commands})
	}
	for _, line := range commands {
		if _, err := fmt.Fprintln(c.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// pruneImages deletes the snapshots that keep Cluster API from finding exactly
// one, after it has listed and asked for them.
func pruneImages(ctx context.Context, r *running) error {
	plan, err := prune.Plan(ctx, r.Cfg.Config, r.Tools)
	if err != nil {
		return err
	}
	many := false
	for _, p := range plan {
		r.Hub.Note("image %s for %s: keeping %s", p.Name, p.Architecture, p.Keep)
		for _, one := range p.Delete {
			r.Hub.Note("to be deleted: %s", one)
			many = true
		}
	}
	if !many {
		r.Hub.Note("no snapshot is in the way: nothing to delete")
		return nil
	}
	if !r.options.Yes {
		if err := confirm(ctx, r.console,
			"Delete these snapshots? Servers that were created from them are not touched. [yes/no] ", "yes"); err != nil {
			return err
		}
	}
	for _, p := range plan {
		if err := p.Prune(ctx, r.Tools); err != nil {
			return err
		}
		if len(p.Delete) > 0 {
			r.Hub.Note("image %s for %s is %s now, and nothing else", p.Name, p.Architecture, p.Keep)
		}
	}
	return nil
}

func addImageFlags(cmd *cobra.Command, o *options) {
	cmd.Flags().BoolVar(&o.Prune, "prune", false, "keep the newest available snapshot of the name, delete the others")
	cmd.Flags().BoolVar(&o.Packer, "packer", false, "print the command of Packer that creates the same image")
}
