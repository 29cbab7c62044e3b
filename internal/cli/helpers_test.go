package cli

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

var update = flag.Bool("update", false, "write the generated parts of the documentation")

// folderContents lists every file below a folder with its size and the time of
// its last change, to see whether anything was touched.
func folderContents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&b, "%s %d %s\n", path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// secret is what no output may show.
const secret = "s3cr3t-s3cr3t"

func quiet(string, ...any) {}

// recordStep writes a journal that knows of one step.
func recordStep(t *testing.T, s statedir.Dir, step string) {
	t.Helper()
	err := s.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{step: {State: flow.StateDone}}})
	if err != nil {
		t.Fatal(err)
	}
}

// parseArguments reads a command line and does nothing.
func parseArguments(args []string) (arguments, error) {
	in := call{only: true}
	err := in.execute(context.Background(), args)
	return in.arguments, err
}

// loadConfig reads the configuration that the arguments and the environment name.
func loadConfig(a arguments, environment map[string]string) (settings.Configuration, error) {
	c := call{console: &console{environment: environment}, arguments: a}
	k, err := c.load()
	return k.Cfg, err
}

// targets are the commands that do something by themselves, and those that are groups of steps.
func targets(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	root := newRoot(&call{only: true}, nil)
	walk(root, func(cmd *cobra.Command) {
		if below := strings.HasPrefix(pathOf(cmd), targetFaultAdd+" "); cmd != root && !below &&
			!strings.HasPrefix(pathOf(cmd), "completion") && (!cmd.HasSubCommands() ||
			slices.Contains([]string{"backup", "recover-releases", targetFaultAdd}, pathOf(cmd))) {
			all = append(all, cmd)
		}
	})
	return all
}

// alone reports whether a command cannot be one target among others.
func alone(cmd *cobra.Command) bool {
	_, steps := cmd.Annotations[ofSteps]
	return !steps
}
