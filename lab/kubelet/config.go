package kubelet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// Config configures a kubelet. Fields without a default named here are required.
type Config struct {
	// Cluster names the cluster in the Registry, the status and the processes' labels.
	Cluster string
	// Node is the Node's name.
	Node string
	// Labels of the Node. Those that a kubelet may not give itself
	// (node-role.kubernetes.io/… for one) are set with Admin.
	Labels map[string]string
	// Annotations of the Node.
	Annotations map[string]string
	// Taints that the Node is registered with. A Node that exists keeps those it has.
	Taints []corev1.Taint
	// ExternalCloudProvider registers the Node as uninitialized: a cloud controller manager gives it its provider ID and
	// its addresses, and removes the taint.
	ExternalCloudProvider bool
	// InternalIP is the Node's address.
	InternalIP string
	// ExternalIP is the Node's public address; empty: none. With ExternalCloudProvider it is the provider's to report.
	ExternalIP string
	// ProviderID is empty where a cloud controller manager sets it.
	ProviderID string
	// KubeletVersion that the Node reports, "v1.32.3".
	KubeletVersion string
	// OSImage that the Node reports. Default "slipway lab".
	OSImage string
	// Architecture that the Node reports. Default: this machine's.
	Architecture string
	// Capacity of the Node. Default: enough for every Pod of a lab.
	Capacity corev1.ResourceList

	// Client configuration with the identity system:node:<Node> of the group system:nodes.
	Client *rest.Config
	// Admin sets the labels that a kubelet may not. Default: Client, which is enough where NodeRestriction is off.
	Admin *rest.Config
	// Accepted returns the authorities, in PEM, that are trusted now: the kubelet's own API serves clients with a
	// certificate of theirs. Default: those of Client.
	Accepted func() ([]byte, error)
	// PodServer is the API server's URL in the kubeconfigs of Pods. Default: that of Client.
	PodServer string

	// Dir is the kubelet's folder: volumes, logs, keys. It contains secrets and is created with mode 0700.
	Dir string
	// Processes starts the Pods' processes.
	Processes *proc.Supervisor
	// Programs maps images to executables; the first match counts.
	Programs []Program
	// RefuseUnmapped has a container whose image no program has wait, as one whose image cannot be pulled. Without it such
	// a container is simulated.
	RefuseUnmapped bool
	// Bin is the folder of programs named without a path.
	Bin string
	// Lab is the lab's own binary, the program "lab".
	Lab string
	// Registry is shared by all kubelets of a lab.
	Registry *Registry
	// PodEnv is the environment that every process gets under its container's own: HTTPS_PROXY, also the placeholder
	// {proxy}, and SSL_CERT_FILE, also {ca}.
	PodEnv map[string]string

	// Sandboxes gives each Pod a network and each container a file system of its own; nil: they share the lab's network
	// and the machine's files.
	Sandboxes *sandbox.Runtime
	// Metadata is served to the Node's Pods at 169.254.169.254, where they have a network of their own; nil: nothing is.
	Metadata http.Handler
	// LocalAPI is an address of the Kubernetes API that Pods on the host's network also reach at its port of 127.0.0.1,
	// where they have a network of their own; the zero value: none.
	LocalAPI netip.AddrPort

	// Network is when the Node has its Pod network.
	Network NetworkRule
	// ServingCSR has the kubelet ask for a serving certificate by a CertificateSigningRequest, as with
	// rotate-server-certificates.
	ServingCSR bool
	// Latency of simulated operations. The zero value means no delay, and restarts after 100 ms.
	Latency Latency
	// Log, by default none.
	Log *slog.Logger
}

// NetworkRule is when a Node has its Pod network.
type NetworkRule int

const (
	// NetworkFromStart: the Node is Ready at once, as kind's.
	NetworkFromStart NetworkRule = iota
	// NetworkFromAgent: the Node is Ready, and starts Pods that are not on the host's network, once a
	// Pod on it that mounts the host's /etc/cni/net.d has been Ready. It stays so, also after a restart,
	// as the agent's configuration file does.
	NetworkFromAgent
)

// Latency is how long operations of a real node take.
type Latency struct {
	// PullImage is added to the start of the first container of an image on this Node.
	PullImage time.Duration
	// StartContainer is how long a simulated container takes to be ready or, where it is to complete, to do so.
	StartContainer time.Duration
	// FirstProbe is the time between a container's startup and readiness probes until the first one succeeds;
	// 0: as the Pod says (by default 10 s).
	FirstProbe time.Duration
	// Restart is the first pause before a container that ended is started again. It doubles up to RestartMost, and is the
	// first again when a run lasted ten times that.
	Restart, RestartMost time.Duration
}

// FastLatency keeps a rehearsal short.
func FastLatency() Latency {
	return Latency{
		PullImage: 200 * time.Millisecond, StartContainer: 300 * time.Millisecond, FirstProbe: 200 * time.Millisecond,
		Restart: 500 * time.Millisecond, RestartMost: 5 * time.Second,
	}
}

// RealLatency is near to what a cloud server shows: images of 50 to 100 MB at some 20 MB/s, and a
// kubelet's own back-off (10 s to 5 minutes).
func RealLatency() Latency {
	return Latency{
		PullImage: 4 * time.Second, StartContainer: 2 * time.Second,
		Restart: 10 * time.Second, RestartMost: 5 * time.Minute,
	}
}

func (c Config) withDefaults() (Config, error) {
	var missing []error
	require := func(ok bool, field, hint string) {
		if !ok {
			missing = append(missing, fmt.Errorf("%s is missing: %s", field, hint))
		}
	}
	require(c.Cluster != "", "Cluster", "name the cluster")
	require(c.Node != "", "Node", "name the Node")
	require(c.InternalIP != "", "InternalIP", "set the Node's address")
	require(c.KubeletVersion != "", "KubeletVersion", "give the version to report")
	require(c.Client != nil, "Client", "give a configuration with the Node's identity")
	require(filepath.IsAbs(c.Dir), "Dir", "give an absolute path")
	require(c.Processes != nil, "Processes", "give a supervisor")
	require(c.Registry != nil, "Registry", "give the lab's registry")
	if err := errors.Join(missing...); err != nil {
		return c, fmt.Errorf("kubelet of node %q: %w", c.Node, err)
	}
	if c.Admin == nil {
		c.Admin = c.Client
	}
	if c.Accepted == nil {
		c.Accepted = func() ([]byte, error) { return authorityOf(c.Client) }
	}
	if c.PodServer == "" {
		c.PodServer = c.Client.Host
	}
	if c.OSImage == "" {
		c.OSImage = "slipway lab"
	}
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	if c.Capacity == nil {
		c.Capacity = corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse("64"),
			corev1.ResourceMemory:           resource.MustParse("256Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
			corev1.ResourcePods:             resource.MustParse("500"),
		}
	}
	if c.Latency.Restart == 0 { // a crash loop without a pause would eat a core
		c.Latency.Restart = 100 * time.Millisecond
	}
	if c.Latency.RestartMost < c.Latency.Restart {
		c.Latency.RestartMost = c.Latency.Restart
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// authorityOf returns the authority, in PEM, that a configuration trusts.
func authorityOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	return os.ReadFile(config.CAFile)
}
