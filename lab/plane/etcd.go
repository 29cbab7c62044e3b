// Package plane runs the parts of a Kubernetes control plane as processes: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, all of them the real programs. A management cluster has one plane with
// its own etcd (StartSingle); a simulated Talos server starts its etcd member and its control plane separately, with
// the certificates of its cluster (StartEtcd, Start).
package plane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// Ports of the parts, the same as on a real control plane.
const (
	EtcdClientPort = "2379"
	EtcdPeerPort   = "2380"
	APIPort        = "6443"
)

// ProgramEtcd is the file name of etcd in the folder of programs: its main package is go.etcd.io/etcd/server/v3.
const ProgramEtcd = "server"

// EtcdConfig configures one etcd member. Clients and peers use TLS with certificates of the same authority.
type EtcdConfig struct {
	Name    string // member name; Talos uses the host name
	Bin     string // folder of the programs
	Dir     string // certificates; 0700
	DataDir string // the member's data; empty: Dir/data
	LogFile string
	Address string // IP to listen on and to be known by

	CA   []byte   // certificate of etcd's authority, PEM
	Pair pki.Pair // the member's certificate, for clients and peers; its hosts include Address

	// InitialCluster is empty for a cluster of this one member. A joining member gets "name=peerURL,…" of all members,
	// itself included, and Existing true.
	InitialCluster string
	Existing       bool

	// Durable has the member flush what it writes to the disk, so that a crash of the machine loses nothing.
	Durable bool

	Process string // name in the status; empty: "etcd"
	Labels  map[string]string
	Env     []string // over the defaults
	Args    []string // after the lab's own; later flags win
}

// Etcd is one running member.
type Etcd struct {
	service *proc.Service
	cfg     EtcdConfig
}

// PeerURL returns the address that other members reach the member by.
func (c EtcdConfig) PeerURL() string { return "https://" + net.JoinHostPort(c.Address, EtcdPeerPort) }

// ClientURL returns the address that clients reach the member by.
func (c EtcdConfig) ClientURL() string {
	return "https://" + net.JoinHostPort(c.Address, EtcdClientPort)
}

// StartEtcd starts the member and keeps it running. It does not wait: a learner is ready only after its promotion.
func StartEtcd(super *proc.Supervisor, cfg EtcdConfig) (*Etcd, error) {
	if cfg.DataDir == "" {
		cfg.DataDir = filepath.Join(cfg.Dir, "data")
	}
	if cfg.Process == "" {
		cfg.Process = "etcd"
	}
	if cfg.InitialCluster == "" {
		cfg.InitialCluster = cfg.Name + "=" + cfg.PeerURL()
	}
	state := "new"
	if cfg.Existing {
		state = "existing"
	}
	fail := func(err error) (*Etcd, error) { return nil, fmt.Errorf("start etcd member %s: %w", cfg.Name, err) }
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fail(err)
	}
	caFile := filepath.Join(cfg.Dir, "ca.crt")
	if err := pki.WriteFile(caFile, cfg.CA); err != nil {
		return fail(err)
	}
	certFile, keyFile, err := cfg.Pair.Write(cfg.Dir, "member")
	if err != nil {
		return fail(err)
	}
	service, err := super.Keep(proc.Spec{
		Name: cfg.Process,
		Path: filepath.Join(cfg.Bin, ProgramEtcd),
		Args: append([]string{
			"--name=" + cfg.Name,
			"--data-dir=" + cfg.DataDir,
			// Without fsync a crash of the machine loses a rehearsal; a killed process loses nothing.
			fmt.Sprintf("--unsafe-no-fsync=%t", !cfg.Durable),
			"--log-level=warn",
			"--listen-client-urls=" + cfg.ClientURL(), "--advertise-client-urls=" + cfg.ClientURL(),
			"--listen-peer-urls=" + cfg.PeerURL(), "--initial-advertise-peer-urls=" + cfg.PeerURL(),
			"--initial-cluster=" + cfg.InitialCluster, "--initial-cluster-state=" + state,
			"--cert-file=" + certFile, "--key-file=" + keyFile, "--trusted-ca-file=" + caFile, "--client-cert-auth",
			"--peer-cert-file=" + certFile, "--peer-key-file=" + keyFile, "--peer-trusted-ca-file=" + caFile,
			"--peer-client-cert-auth",
			// Three members share two cores with everything else: a late heartbeat does not mean a lost leader. Milliseconds.
			"--heartbeat-interval=250", "--election-timeout=2500",
		}, cfg.Args...),
		Env:     append(environment(), cfg.Env...),
		Dir:     cfg.Dir,
		LogFile: cfg.LogFile,
		Labels:  cfg.Labels,
	})
	if err != nil {
		return fail(err)
	}
	return &Etcd{service: service, cfg: cfg}, nil
}

// Ready waits until the member serves linearizable reads, so that a leader is known.
func (e *Etcd) Ready(ctx context.Context) error {
	client, err := probeClient(e.cfg.CA, e.cfg.Pair)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return await(ctx, e.service, func(ctx context.Context) error {
		return probe(ctx, client, e.cfg.ClientURL()+"/readyz")
	})
}

// Config returns the member's configuration, for clients that need its address and certificates.
func (e *Etcd) Config() EtcdConfig { return e.cfg }

// Service returns the member's process.
func (e *Etcd) Service() *proc.Service { return e.service }

// Stop ends the member; its data stay.
func (e *Etcd) Stop(ctx context.Context) error { return e.service.Stop(ctx, 5*time.Second) }
