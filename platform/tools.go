package platform

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	clusterctllog "sigs.k8s.io/cluster-api/cmd/clusterctl/log"
	controllerlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// Tools are what the steps work with, made by the caller that runs them.
type Tools struct {
	Hetzner     *hcloud.Client
	Token       Secret             // of Hetzner Cloud; the controllers in the clusters need it too
	GitHubToken Secret             // optional: more requests an hour while the providers' releases are fetched
	Git         GitAccess          // what Flux reads the configured Git repository with
	Management  ManagementProvider // who makes the management cluster
	Files       Files              // the state folder
	// folder whose manifests/ and bootstrap/ win over the files inside the command, file by file; empty: none
	Overrides string
	// address of the Image Factory that the operator's own schematics are posted to; empty: none is
	Factory string
	Consent bool // the operator agrees beforehand to what a step refuses otherwise: apply, pivot, clean
	// Agreed are summaries of the consequences that the operator has agreed to by the time a step asks; apply does these,
	// and no others like them. nil: there are none.
	Agreed      func() []string
	ServerTakes time.Duration // about how long it takes to replace one server; 0: not known
	Log         io.Writer     // takes what the libraries log; nil: it is discarded
	Version     string        // of the program, where it writes down who changed an object; empty: not known

	// CommandLine is what the operator types to have a target run for this very cluster, with the flags and values that
	// lead to it. nil: ShellCommand.
	CommandLine func(target ...string) string

	// OwnAddress tells this machine's address towards the internet, for FIREWALL_ALLOW=auto. nil: ask ownAddressURL.
	OwnAddress func(context.Context) (netip.Addr, error)

	// LookupHost resolves the host name of CONTROL_PLANE_ENDPOINT. nil: the system's resolver does.
	LookupHost func(ctx context.Context, name string) ([]string, error)

	clients
}

// clients are fields of Tools that the command and tests set. They are no part of the public interface, because their
// types are internal. WithDefaults sets the functions that are nil to the real ones.
type clients struct {
	Effects *effect.Recorder // records what the clients below and Files change; nil: nothing is recorded
	// Connect opens a cluster by a kubeconfig that kubeconfig.Accept takes, ConnectTrusted by one that the operator named.
	Connect, ConnectTrusted func(kubeconfig []byte) (*kube.Cluster, error)

	// Clusterctl makes clusterctl's client for a management cluster whose core has a contract; empty: the library's own.
	Clusterctl func(ctx context.Context, c clusterctlconfig.Client, contract string) (Clusterctl, error)
	Talos      func(talosconfig []byte) (talos.Client, error)
	Upload     hetzner.Uploader
}

// Program is the command's name, as the operator types it.
const Program = "bootstrap"

// ShellCommand is a target of the command with nothing but its own words, as a POSIX shell reads them.
func ShellCommand(target ...string) string {
	return text.ShellLine(append([]string{Program}, target...)...)
}

// Command is a command in an error or a remark, to be typed as it is.
func (t Tools) Command(target ...string) string {
	if t.CommandLine == nil {
		return ShellCommand(target...)
	}
	return t.CommandLine(target...)
}

// ManagementProvider makes the cluster that Cluster API works in until the new cluster can hold it.
type ManagementProvider interface {
	// Name says who it is: "kind", "kubeconfig", "lab".
	Name() string
	// Ensure looks for the cluster, adopts it when it is there and makes it otherwise.
	Ensure(ctx context.Context, name string, say flow.Say) (kubeconfig []byte, err error)
	// Exists reports whether the cluster is there, whatever its state. An error means that it could not ask.
	Exists(ctx context.Context, name string) (bool, error)
	// Delete removes the cluster.
	Delete(ctx context.Context, name string) error
}

// Looker is a ManagementProvider that can leave a cluster partially created, and can look at it without creating it
// again.
type Looker interface {
	// Look gives the kubeconfig of a cluster that exists; nil where it is partially created, and holds nothing. It changes
	// nothing.
	Look(ctx context.Context, name string) (kubeconfig []byte, err error)
}

// GivenManagement is a ManagementProvider of a cluster that was there before: it may hold objects of other clusters,
// and is never deleted.
type GivenManagement interface {
	// Given says so.
	Given() bool
}

// ManagementGiven reports whether the management cluster was there before, and is never deleted.
func (t Tools) ManagementGiven() bool {
	g, ok := t.Management.(GivenManagement)
	return ok && g.Given()
}

// Existing opens a management cluster that exists as its provider says; nil where it is partially created. It makes
// none.
func (t Tools) Existing(ctx context.Context, name string) (kubeconfig []byte, err error) {
	if l, ok := t.Management.(Looker); ok {
		return l.Look(ctx, name)
	}
	return t.Management.Ensure(ctx, name, func(string, ...any) {}) // which adopts it
}

// Clusterctl is the part of clusterctl's client that capi-init and upgrade use.
type Clusterctl interface {
	Init(context.Context, clusterctl.InitOptions) ([]clusterctl.Components, error)
	ApplyUpgrade(context.Context, clusterctl.ApplyUpgradeOptions) error
	// CoreContract is the contract that a version of the core keeps, as its release says.
	CoreContract(ctx context.Context, version string) (string, error)
	// CertManager is what looks after cert-manager in the cluster of a kubeconfig's file.
	CertManager(kubeconfig string) (cluster.CertManagerClient, error)
}

// RecordedFiles is Files, with its changes recorded as those of the clients are.
func (t Tools) RecordedFiles() Files {
	t.Files.effects = t.Effects
	return t.Files
}

// WithDefaults sets what is nil to what a bootstrap at Hetzner uses.
func (t Tools) WithDefaults() Tools {
	if t.Log == nil {
		t.Log = io.Discard
	}
	if t.OwnAddress == nil {
		t.OwnAddress = AskOwnAddress
	}
	t.Files = t.RecordedFiles()
	connections := &kube.Connections{Wrap: t.recorded} // whose changes are recorded
	if t.Connect == nil {
		t.Connect = connections.Connect
	}
	if t.ConnectTrusted == nil {
		t.ConnectTrusted = connections.ConnectTrusted
	}
	if t.Clusterctl == nil {
		t.Clusterctl = t.clusterctlRecorded
	}
	if t.Upload == nil {
		t.Upload = t.uploadRecorded
	}
	if t.Talos == nil {
		t.Talos = func(talosconfig []byte) (talos.Client, error) {
			credentials, err := talos.Parse(talosconfig)
			if err != nil {
				return nil, err
			}
			if ended, err := credentials.Expires(); err == nil && time.Now().After(ended) {
				return nil, fmt.Errorf("the client certificate of the talosconfig ended on %s: %s, or after a pivot %s, writes a "+
					"new one, from the Secret in which the bootstrap provider keeps it", ended.UTC().Format(time.RFC3339),
					t.Command("talosconfig"), t.Command("access"))
			}
			return credentials.Through(t.Effects.TalosDial()...), nil
		}
	}
	return t
}

// RedirectLibraryLogs sends what clusterctl, controller-runtime, client-go and the registry client log to w. Their
// loggers are global to the process: the last call counts.
func RedirectLibraryLogs(w io.Writer) {
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(w, prefix, args) }, funcr.Options{LogTimestamp: true,
		Verbosity: 1})
	clusterctllog.SetLogger(log.WithName("clusterctl"))
	controllerlog.SetLogger(log.WithName("controller-runtime"))
	logrus.SetOutput(w)
	klog.SetLoggerWithOptions(log.WithName("client-go"), klog.ContextualLogger(true))
}

// Secret is a text that no output shows: it prints, and marshals, as "[hidden]".
type Secret struct{ text string }

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal gives the text.
func (s Secret) Reveal() string { return s.text }

// Hidden is printed in place of a secret.
const Hidden = "[hidden]"

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Hidden) }

// String implements fmt.Stringer.
func (Secret) String() string { return Hidden }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }
