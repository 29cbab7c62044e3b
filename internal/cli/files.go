package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
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

// runConfigFiles lists the files that the cluster is made from, or writes the
// built-in ones.
func runConfigFiles(_ context.Context, c *console, a arguments, o filesOptions) error {
	if o.Out != "" {
		return writeBuiltInFiles(c, settings.InFolder(c.workDir, o.Out), a.Options.Output)
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	files, err := render.SourceFiles(cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, fileList{"files", cfg.Overrides, files})
	}
	var rows [][]string
	for _, f := range files {
		use := string(f.Use)
		if f.Same {
			use = "same as built-in"
		}
		rows = append(rows, []string{f.File, use, text.Dash(text.Printable(f.Path))})
	}
	text.Table(c.stdout, c.width(), []string{"FILE", "USE", "YOUR FILE"}, rows...)
	_, err = fmt.Fprintf(c.stdout, "\nyour files are looked for in manifests/ and bootstrap/ of %s\n",
		text.Printable(cfg.Overrides))
	return err
}

// writeBuiltInFiles writes the built-in files below a folder. It writes none
// where one is there already.
func writeBuiltInFiles(c *console, dir, output string) error {
	files, err := render.BuiltInFiles()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := refuseToReplace(dir, filepath.FromSlash(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write the built-in files: %w", err)
		}
		if err := writeNew(path, files[name]); err != nil {
			return fmt.Errorf("write the built-in files: %w", err)
		}
	}
	if output == "json" {
		return ui.PrintJSON(c.stdout, filesWritten{"files", dir, names})
	}
	_, err = fmt.Fprintf(c.stdout,
		"written to %s: %s\nDelete what you do not change: a file that is not there is the built-in one, of each later "+
			"release too. "+
			"In the values files keep only your own keys.\n", text.Printable(dir), strings.Join(names, ", "))
	return err
}

// refuseToReplace refuses to write a file where something is in its way.
func refuseToReplace(dir, name string) error {
	for below := filepath.Dir(name); below != "."; below = filepath.Dir(below) {
		folder := filepath.Join(dir, below)
		if info, err := os.Stat(folder); err == nil && !info.IsDir() {
			return usage.Errorf("%s is a file, and the built-in files need a folder of this name: nothing is written; name "+
				"another folder with --out", folder)
		}
	}
	path := filepath.Join(dir, name)
	switch _, err := os.Lstat(path); {
	case err == nil:
		return usage.Errorf("%s is there already: nothing is written; remove it, or name another folder with --out", path)
	case !errors.Is(err, fs.ErrNotExist):
		return usage.Errorf("write the built-in files: %w", err)
	}
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// filesOptions are the flags of config files.
type filesOptions struct {
	Out string // folder to write the built-in files into; empty: only list
}

func newConfigFilesCommand(in *invocation) *cobra.Command {
	var own filesOptions
	cmd := in.command("files", "",
		"list the files that the cluster is created from, and which are your own; --out DIR writes the built-in ones to "+
			"start from",
		func(ctx context.Context, c *console, a arguments) error {
			return runConfigFiles(ctx, c, a, own)
		})
	cmd.Flags().StringVar(&own.Out, "out", "", "write the built-in files into the folder `DIR`")
	return cmd
}
