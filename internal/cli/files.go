package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// fileList is what config files prints as JSON.
type fileList struct {
	Kind  string              `json:"kind"` // "files"
	Dir   string              `json:"dir"`  // in which the operator's own files are looked for
	Files []render.SourceFile `json:"files"`
}

// filesWritten is what config files --out prints as JSON.
type filesWritten struct {
	Kind    string   `json:"kind"` // "files"
	Dir     string   `json:"dir"`
	Written []string `json:"written"` // paths below dir
}

// runConfigFiles lists the files that the cluster is made from, or writes the built-in ones into a folder.
func runConfigFiles(c *call, out string) error {
	if out != "" {
		return writeBuiltInFiles(c, settings.InFolder(c.workDir, out))
	}
	k, err := c.load()
	if err != nil {
		return err
	}
	files, err := render.SourceFiles(k.Cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return c.print(fileList{"files", k.Cfg.Overrides, files}, func(out io.Writer, width int) error {
		var rows [][]string
		for _, f := range files {
			use := string(f.Use)
			if f.Same {
				use = "same as built-in"
			}
			rows = append(rows, []string{f.File, use, text.Dash(text.Printable(f.Path))})
		}
		text.Table(out, width, []string{"FILE", "USE", "YOUR FILE"}, rows...)
		return c.say("\nyour files are looked for in manifests/ and bootstrap/ of %s", text.Printable(k.Cfg.Overrides))
	})
}

func writeBuiltInFiles(c *call, dir string) error {
	names, err := operations.WriteBuiltInFiles(dir)
	if err != nil {
		return err
	}
	return c.print(filesWritten{"files", dir, names}, func(io.Writer, int) error {
		return c.say("written to %s: %s\nDelete what you do not change: a file that is not there is the built-in one, of "+
			"each later release too. In the values files keep only your own keys.", text.Printable(dir),
			strings.Join(names, ", "))
	})
}

func newConfigFilesCommand(c *call) *cobra.Command {
	var out string
	cmd := c.command("files", "",
		"list the files that the cluster is created from, and which are your own; --out DIR writes the built-in ones to "+
			"start from",
		func(_ context.Context, c *call) error { return runConfigFiles(c, out) })
	cmd.Flags().StringVar(&out, "out", "", "write the built-in files into the folder `DIR`")
	return cmd
}
