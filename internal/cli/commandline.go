package cli

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

const clusterNameVariable = "CLUSTER_NAME"

// commandLine composes every command that is printed for the operator to type: a target of the same cluster, in the
// same environment and state folder, from the same configuration. Paths and values are quoted for a POSIX shell.
func commandLine(c *call, target ...string) string {
	return composeCommandLine(c.arguments, c.environment, target)
}

// commandLineFor is commandLine for a cluster of another name.
func commandLineFor(c *call, cluster string, target ...string) string {
	other := c.arguments
	other.Values = append(slices.Clone(other.Values), settings.Assign(clusterNameVariable, cluster))
	return composeCommandLine(other, c.environment, target)
}

// composeCommandLine adds to a target, with its arguments and flags, what was given to this command and leads that one
// to the same cluster.
func composeCommandLine(given arguments, environment map[string]string, target []string) string {
	words := append([]string{platform.Program}, target...)
	words = append(words, sharedFlags(given, target)...)
	return text.ShellLine(append(words, sharedValues(given.Values, environment, target)...)...)
}

// sharedFlags are the flags that a command for the same cluster needs again, where its target takes them.
func sharedFlags(o arguments, target []string) []string {
	var words []string
	add := func(name, value string) {
		if value != "" && takesFlag(target, name) && !slices.Contains(target, "--"+name) {
			words = append(words, "--"+name, value)
		}
	}
	lab := len(target) > 0 && target[0] == "lab"
	if o.Lab && !lab {
		words = append(words, "--lab")
	}
	if o.Lab || lab {
		add("lab-images", o.LabImages)
		add("lab-dir", o.LabDir)
	}
	add("config", o.Config)
	add("dir", o.Dir)
	add("versions-file", o.VersionsFile)
	add("state-dir", o.StateDir)
	add("identity", o.Identity)
	for name, given := range map[string]bool{"unencrypted": o.Unencrypted, "unauthenticated": o.Unauthenticated} {
		if given && takesFlag(target, name) && !slices.Equal(target, []string{"backup"}) {
			words = append(words, "--"+name)
		}
	}
	return words
}

// takesFlag reports whether a flag goes with a target.
func takesFlag(target []string, name string) bool {
	root := newRoot(&call{only: true}, nil)
	cmd, _, err := root.Find(target)
	return err == nil && (root.PersistentFlags().Lookup(name) != nil || cmd.Flags().Lookup(name) != nil)
}

// sharedValues are the KEY=VALUE that a command needs again: all that were given, where its target reads the whole
// configuration, and the cluster's name for every target. That is also repeated from the environment, which another
// shell does not have.
func sharedValues(values []settings.Assignment, environment map[string]string, target []string) []string {
	last := map[string]string{}
	var names []string
	for _, v := range values {
		if v.Variable.Name != clusterNameVariable && nameSuffices(target) {
			continue
		}
		if _, again := last[v.Variable.Name]; !again {
			names = append(names, v.Variable.Name)
		}
		last[v.Variable.Name] = v.Shown()
	}
	if name := environment[clusterNameVariable]; name != "" && last[clusterNameVariable] == "" {
		names = append(names, clusterNameVariable)
		last[clusterNameVariable] = clusterNameVariable + "=" + name
	}
	var words []string
	for _, name := range names {
		words = append(words, last[name])
	}
	return words
}

// nameSuffices reports whether a target needs no more of the configuration than the cluster's name.
func nameSuffices(target []string) bool {
	return len(target) > 0 && slices.Contains([]string{"lab", targetReport, targetLogs, "effects"}, target[0])
}
