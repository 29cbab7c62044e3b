package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
)

// newVersionCommand creates the command that prints the versions of which the command is built.
func newVersionCommand(c *call) *cobra.Command {
	return c.command("version", groupOther,
		"show the version, and those of the libraries, of what a cluster gets and of the lab", runVersion)
}

// versionReport is what the command is made of, in `bootstrap version --output json`.
type versionReport struct {
	Kind      string        `json:"kind"` // "version"
	Version   string        `json:"version"`
	Commit    string        `json:"commit,omitempty"`
	Modified  bool          `json:"modified,omitempty"` // the source had changes that are in no commit
	Go        string        `json:"go"`
	System    string        `json:"system"`
	Libraries []lab.Version `json:"libraries"`
	Cluster   []lab.Version `json:"cluster"` // what a cluster gets where nothing else is configured
	Sets      []versionSet  `json:"sets"`    // what VERSIONS can name; current is the newest with a month as its name
	Default   string        `json:"default"` // set of a new cluster
	AsOf      string        `json:"asOf"`    // day of the table of versions
	Lab       []lab.Version `json:"lab"`     // of its source; empty: the command runs in no clone

	age string // of the table, in words
}

// versionSet is a version set, with its versions as `bootstrap version` shows them.
type versionSet struct {
	Name     string        `json:"name"`
	Doc      string        `json:"doc"`
	Versions []lab.Version `json:"versions"`
}

// librariesShown are the modules whose versions matter to a cluster.
func librariesShown() []string {
	return []string{
		"sigs.k8s.io/cluster-api", "sigs.k8s.io/kind", "helm.sh/helm/v3", "github.com/siderolabs/talos/pkg/machinery",
		"github.com/hetznercloud/hcloud-go/v2", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
	}
}

// runVersion prints what the command is made of.
func runVersion(_ context.Context, c *call) error {
	info, _ := debug.ReadBuildInfo()
	table, err := c.Table(c.workDir)
	if err != nil {
		return err
	}
	r := newVersionReport(info, c.workDir, table)
	return c.print(r, r.print)
}

// newVersionReport reads what is built into the command, where that is known, and the lab's source, where a folder lies
// in it.
func newVersionReport(info *debug.BuildInfo, dir string, table *config.Table) versionReport {
	r := versionReport{Kind: "version", Version: session.Version(), Go: runtime.Version(), System: runtime.GOOS + "/" +
		runtime.GOARCH,
		Libraries: []lab.Version{}, Lab: []lab.Version{}}
	r.Default, r.AsOf, r.age = table.Default, table.AsOf.String(), table.Age(time.Now())
	for _, s := range table.Sets {
		r.Sets = append(r.Sets, versionSet{s.Name, s.Doc, versionsOf(s)})
	}
	r.Cluster = defaultVersions(config.DefaultsOf(table))
	if found, err := lab.SourceVersions(dir); err == nil {
		r.Lab = found
	}
	if info == nil {
		return r
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			r.Commit = s.Value
		case "vcs.modified":
			r.Modified = s.Value == "true"
		}
	}
	for _, name := range librariesShown() {
		i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == name })
		if i < 0 {
			continue
		}
		m := info.Deps[i]
		if m.Replace != nil && m.Replace.Version != "" {
			m = m.Replace
		}
		r.Libraries = append(r.Libraries, lab.Version{Name: name, Version: m.Version})
	}
	return r
}

// defaultVersions are what a cluster gets where nothing else is configured. Not all of them are part of version sets.
func defaultVersions(defaults config.Config) (all []lab.Version) {
	for _, v := range config.Variables() {
		if name, is := strings.CutSuffix(v.Name, "_VERSION"); is && v.Default != "" {
			all = append(all, lab.Version{Name: name, Version: v.Get(defaults)})
		}
	}
	return all
}

// versionsOf are the versions of a set, in the order of the documentation.
func versionsOf(s config.VersionSet) (all []lab.Version) {
	for _, v := range config.Variables() {
		if version, has := s.Versions[v.Name]; has {
			all = append(all, lab.Version{Name: strings.TrimSuffix(v.Name, "_VERSION"), Version: version})
		}
	}
	return all
}

func (r versionReport) print(out io.Writer, _ int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "version\t%s\n", r.Version)
	if r.Commit != "" {
		modified := ""
		if r.Modified {
			modified = ", with changes"
		}
		fmt.Fprintf(w, "commit\t%s%s\n", r.Commit, modified)
	}
	fmt.Fprintf(w, "go\t%s, %s\n", r.Go, r.System)
	fmt.Fprintf(w, "versions\t%s\n", r.age)
	type part struct {
		title, without string
		all            []lab.Version
	}
	parts := []part{{"Libraries", "unknown: the command was built without them", r.Libraries},
		{"A cluster gets, unless configured", "", r.Cluster}}
	for _, s := range r.Sets {
		if s.Name == r.Default {
			continue
		}
		parts = append(parts, part{fmt.Sprintf("With VERSIONS=%s, %s", s.Name, s.Doc), "", s.Versions})
	}
	parts = append(parts, part{"The lab", "unknown: the command runs in no clone of Slipway", r.Lab})
	for _, part := range parts {
		fmt.Fprintf(w, "\n%s:\n", part.title)
		if len(part.all) == 0 {
			fmt.Fprintf(w, "  %s\n", part.without)
		}
		for _, v := range part.all {
			fmt.Fprintf(w, "  %s\t%s\n", v.Name, v.Version)
		}
	}
	return w.Flush()
}
