package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/ensure/prune"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/steps"
)

// packerCalls is what image --packer prints as JSON.
type packerCalls struct {
	Kind     string   `json:"kind"` // "packer"
	Commands []string `json:"commands"`
}

// runPacker prints the Packer call that makes what the step image would.
func runPacker(c *call) error {
	k, err := c.load()
	if err != nil {
		return err
	}
	commands, err := steps.PackerCommands(k.Cfg.Config, k.Cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return c.printLine(packerCalls{"packer", commands}, func(io.Writer, int) error {
		return c.say("%s", strings.Join(commands, "\n"))
	})
}

// pruneImages deletes the snapshots that keep Cluster API from finding exactly
// one, after it has listed and asked for them.
func pruneImages(ctx context.Context, c *call, s *session.Session) error {
	plan, err := prune.Plan(ctx, s.Cfg.Config, s.Tools)
	if err != nil {
		return err
	}
	many := false
	for _, p := range plan {
		s.Hub.Note("image %s for %s: keeping %s", p.Name, p.Architecture, p.Keep)
		for _, one := range p.Delete {
			s.Hub.Note("to be deleted: %s", one)
			many = true
		}
	}
	if !many {
		s.Hub.Note("no snapshot is in the way: nothing to delete")
		return nil
	}
	if !c.Yes {
		if err := c.confirm(ctx,
			"Delete these snapshots? Servers that were created from them are not touched. [yes/no] ", "yes"); err != nil {
			return err
		}
	}
	for _, p := range plan {
		if err := p.Prune(ctx, s.Tools); err != nil {
			return err
		}
		if len(p.Delete) > 0 {
			s.Hub.Note("image %s for %s is %s now, and nothing else", p.Name, p.Architecture, p.Keep)
		}
	}
	return nil
}

func addImageFlags(cmd *cobra.Command, o *arguments) {
	cmd.Flags().BoolVar(&o.Prune, "prune", false, "keep the newest available snapshot of the name, delete the others")
	cmd.Flags().BoolVar(&o.Packer, "packer", false, "print the command of Packer that creates the same image")
}
