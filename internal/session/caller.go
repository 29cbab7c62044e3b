package session

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// Caller is the program that opens sessions: what its process was given, and what it wants to hear of.
type Caller struct {
	Environment map[string]string // variables of the process
	WorkDir     string            // what relative paths are relative to
	Hide        *redact.Redactor  // learns every secret that is read, and takes them out of what is printed and written
	Notes       func(string)      // takes what is said outside of a session's events; nil: it is discarded
	// Token is the Hetzner API token; if empty, it is read from where the configuration and the environment say.
	Token platform.Secret
	// Git is what the Git repository is read with; if empty, it is read from where the configuration and the environment
	// say.
	Git platform.GitAccess
	// Program is true if a Go program opened the session through package slipway: messages then name fields of
	// slipway.Options instead of flags.
	Program bool
	// CommandLine composes a command for a person to type: a target, with its arguments and flags, for the cluster that
	// the session is about. nil: the target alone.
	CommandLine func(target ...string) string
	// Management provides the management cluster at Hetzner; nil: as the configuration says.
	Management platform.ManagementProvider
	// Faults returns the faults to inject, for the crash suite alone.
	Faults func() effect.Faults
	// Equip is called whenever a client of the Hetzner API is created from a token, and can replace it and other clients.
	// Optional.
	Equip func(*platform.Tools)
	// Charts downloads what a prediction renders; nil: as a run does.
	Charts checks.Download
	// KeepStateLocal keeps the state of a rehearsal that makes its own folder out of the store that STATE names.
	KeepStateLocal bool
	// Memory is kept between the inspections of one program. Optional.
	Memory *Memory
}

// Memory is what a program that inspects a cluster again and again asks for, and says, once.
type Memory struct {
	token *tokenAnswer // of hcloudTokenCommand, which may ask a person; nil: it has not been run
	note  string       // the last note about the state in a store
}

// tokenAnswer is what came of asking for the token.
type tokenAnswer struct {
	token platform.Secret
	err   error
}

// Request is what is asked of a session, and which cluster and environment it is about.
type Request struct {
	Targets []string              // as they were written, in their order
	Values  []settings.Assignment // of the configuration, which win over the file and the environment, in their order
	Base    []byte                // a configuration to begin with in place of the defaults: a backup's
	WorkDir string                // what relative paths of the configuration are relative to; empty: the process's own
	Options
}

// Options are the choices of a session that are no configuration of the cluster.
type Options struct {
	Config string // path of bootstrap.yaml; empty: the default one, where it exists
	Dir    string // folder of the operator's manifests/ and bootstrap/; empty: that of the configuration file
	// VersionsFile is a file with a table of versions, in place of the one inside this command; empty: that.
	VersionsFile string
	Lab          bool
	LabLatency   string // "fast" or "real"
	LabAPI       string // date of the simulated Hetzner API: lab.APIDates
	LabImages    string // file with a mapping of images to programs
	LabDir       string // folder of the lab; empty: in the state folder
	LabUntil     int    // process with whose end a lab that is started ends, too; 0: none
	StateDir     string // empty: .slipway/<cluster>
	Yes          bool   // agree beforehand to what is asked otherwise
	Parallel     int    // steps at once at most; 0: as many as can
	SkipDoctor   bool   // run without the doctor's checks
}

// Note says something outside of a session's events.
func (c *Caller) Note(format string, args ...any) {
	if c.Notes != nil {
		c.Notes(c.Hide.Text(fmt.Sprintf(format, args...)))
	}
}

// noteOnce is Note for what each inspection by one program would say.
func (c *Caller) noteOnce(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.Memory != nil && c.Memory.note == line {
		return
	}
	if c.Memory != nil {
		c.Memory.note = line
	}
	c.Note("%s", line)
}

// Command is a command for the operator to type: a target for the same cluster, with its arguments and flags.
func (c *Caller) Command(target ...string) string {
	if c.CommandLine == nil {
		return platform.ShellCommand(target...)
	}
	return c.CommandLine(target...)
}

// tokenOnce is the token for an inspection. The command that prints it may ask a person each time it runs: so it runs
// for the first inspection alone.
func (c *Caller) tokenOnce(ctx context.Context, cfg settings.Configuration) (platform.Secret, error) {
	if c.Memory != nil && c.Memory.token != nil {
		return c.Memory.token.token, c.Memory.token.err
	}
	token, err := c.token(ctx, cfg)
	if c.Memory != nil && cfg.TokenCommand != "" && context.Cause(ctx) == nil {
		c.Memory.token = &tokenAnswer{token, err}
	}
	return token, err
}

// token is the token of Hetzner, which no output shows.
func (c *Caller) token(ctx context.Context, cfg settings.Configuration) (platform.Secret, error) {
	if c.Token.Reveal() != "" {
		return c.Token, nil
	}
	token, err := cfg.Token(ctx, c.Environment)
	if err == nil {
		c.Hide.Learn(token.Reveal())
	}
	return token, err
}

// Version is the module's version as Go recorded it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
