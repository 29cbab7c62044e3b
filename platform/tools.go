package platform

import (
	"context"
	"errors"
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
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/shell"
	"github.com/slipway-k8s/slipway/internal/talos"
)

// Tools are what the steps work with, made by whoever runs them.
type Tools struct {
	Hetzner     *hcloud.Client
	Token       Secret             // of Hetzner Cloud; the controllers in the clusters need it too
	GitHubToken Secret             // optional: more requests an hour while the providers' releases are fetched
	Management  ManagementProvider // who makes the management cluster
	Files       Files              // the state folder
	Overrides   string             // folder whose manifests/ and bootstrap/ win over the files inside the command, file by file; empty: none
	Factory     string             // address of the Image Factory that is told of schematics of the user's own; empty: none is
	Consent     bool               // the operator agrees beforehand to what a step refuses otherwise: apply, pivot, clean
	Agreed      []string           // summaries of the consequences that the operator agreed to; apply does these, and no others like them
	ServerTakes time.Duration      // about how long it takes to replace one server; 0: not known
	Log         io.Writer          // takes what the libraries log; nil: it is discarded
	Effects     *effect.Recorder   // sees what the factories' clients and Files change; Hetzner's and Management's makers see to theirs. nil: nobody does

	// CommandLine is what the operator types to have a target run for this very cluster, with the flags and values that lead to it. nil: ShellCommand.
	CommandLine func(target ...string) string

	// OwnAddress tells this machine's address towards the internet, for FIREWALL_ALLOW=auto. nil: ask ownAddressURL.
	OwnAddress func(context.Context) (netip.Addr, error)

	// Factories. New sets those that are nil to the real ones.
	Connect    func(kubeconfig []byte) (*kube.Cluster, error)
	Clusterctl func(context.Context, clusterctlconfig.Client) (Clusterctl, error)
	Talos      func(talosconfig []byte) (TalosClient, error)
	Upload     hetzner.Uploader
}

// Program is the command's name, as the operator types it.
const Program = "bootstrap"

// ShellCommand is a target of the command with nothing but its own words, as a POSIX shell reads them.
func ShellCommand(target ...string) string {
	return shell.Line(append([]string{Program}, target...)...)
}

// Command is a command in an error or a remark, to be typed as it is.
func (t Tools) Command(target ...string) string {
	if t.CommandLine == nil {
		return ShellCommand(target...)
	}
	return t.CommandLine(target...)
}

// Mismatch says that not exactly one image of a name was found, and how to be left with one.
func (t Tools) Mismatch(name, architecture string, found []hetzner.Image) *hetzner.ImageError {
	return &hetzner.ImageError{Name: name, Architecture: architecture, Found: found, Prune: t.Command("image", "--prune")}
}

// ExactlyOneImage finds the image of a name.
func (t Tools) ExactlyOneImage(ctx context.Context, name, architecture string) (hetzner.Image, error) {
	is, err := hetzner.FindImage(ctx, t.Hetzner, name, architecture)
	var mismatch *hetzner.ImageError
	if errors.As(err, &mismatch) {
		mismatch.Prune = t.Command("image", "--prune")
	}
	return is, err
}

// ManagementProvider makes the cluster that Cluster API works in until the new cluster can hold it.
type ManagementProvider interface {
	// Name says who it is: "kind", "kubeconfig", "lab".
	Name() string
	// Ensure looks for the cluster, adopts it when it is there and makes it otherwise.
	Ensure(ctx context.Context, name string, say flow.Say) (kubeconfig []byte, err error)
	// Exists tells whether the cluster is there, whatever its state. An error means that it could not ask.
	Exists(ctx context.Context, name string) (bool, error)
	// Delete removes the cluster.
	Delete(ctx context.Context, name string) error
}

// Looker is a ManagementProvider that can leave a cluster half made, and does not have to make it anew to look at it.
type Looker interface {
	// Look gives the kubeconfig of a cluster that exists; nil where it is half made, and holds nothing. It changes nothing.
	Look(ctx context.Context, name string) (kubeconfig []byte, err error)
}

// Existing opens a management cluster that its provider has told to exist; nil where it is half made. It makes none.
func (t Tools) Existing(ctx context.Context, name string) (kubeconfig []byte, err error) {
	if l, ok := t.Management.(Looker); ok {
		return l.Look(ctx, name)
	}
	return t.Management.Ensure(ctx, name, func(string, ...any) {}) // which adopts it
}

// Clusterctl is the part of clusterctl's client that capi-init and pivot use.
type Clusterctl interface {
	Init(context.Context, clusterctl.InitOptions) ([]clusterctl.Components, error)
	Move(context.Context, clusterctl.MoveOptions) error
	// CertManager is what looks after cert-manager in the cluster of a kubeconfig's file.
	CertManager(kubeconfig string) (cluster.CertManagerClient, error)
}

// TalosClient asks Talos nodes, has one of them restore etcd, and wipes them.
type TalosClient interface {
	Ask(ctx context.Context, address string) (talos.Node, error)
	AskBy(context.Context, talos.Route) (talos.Node, error)
	EtcdMembers(ctx context.Context, address string) ([]talos.EtcdMember, error)
	EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error)
	EtcdMembersOf(context.Context, talos.Route) ([]talos.EtcdMember, error)
	EtcdIndex(context.Context, talos.Route) (uint64, error)
	EtcdSnapshotBy(context.Context, talos.Route) (io.ReadCloser, error)
	HasEtcdData(context.Context, talos.Route) (bool, error)
	HasSnapshot(ctx context.Context, on talos.Route, snapshot io.Reader, size int64) (bool, error)
	UploadSnapshot(ctx context.Context, to talos.Route, snapshot io.Reader) error
	BootstrapRecovered(context.Context, talos.Route) error
	WipeEphemeral(context.Context, talos.Route) error
}

func (t Tools) WithDefaults() Tools {
	if t.Log == nil {
		t.Log = io.Discard
	}
	if t.OwnAddress == nil {
		t.OwnAddress = AskOwnAddress
	}
	t.Files.effects = t.Effects
	if t.Connect == nil {
		t.Connect = t.connectRecorded()
	}
	if t.Clusterctl == nil {
		t.Clusterctl = t.clusterctlRecorded
	}
	if t.Upload == nil {
		t.Upload = t.uploadRecorded
	}
	if t.Talos == nil {
		t.Talos = func(talosconfig []byte) (TalosClient, error) {
			credentials, err := talos.Parse(talosconfig)
			if err != nil {
				return nil, err
			}
			return credentials.Through(t.Effects.TalosDial()...), nil
		}
	}
	return t
}

// RedirectLibraryLogs sends what clusterctl, controller-runtime, client-go and the registry client log to w. Their loggers are global to the
// process, so it is called once, by the command, before any step runs.
func RedirectLibraryLogs(w io.Writer) {
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(w, prefix, args) }, funcr.Options{LogTimestamp: true, Verbosity: 1})
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

const Hidden = "[hidden]"

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Hidden) }

// String implements fmt.Stringer.
func (Secret) String() string { return Hidden }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }
