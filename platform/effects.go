package platform

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/apricote/hcloud-upload-image/hcloudimages"
	"github.com/apricote/hcloud-upload-image/hcloudimages/contextlogger"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	versions "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	clusterctlapi "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// recorded is the transport for the cluster of a kubeconfig; nil where its changes are not recorded.
func (t Tools) recorded(kubeconfig []byte, trusted bool) transport.WrapperFunc {
	if t.Effects == nil {
		return nil
	}
	system := t.system(kubeconfig, trusted)
	return func(next http.RoundTripper) http.RoundTripper {
		return t.Effects.Transport(next, system, effect.KubernetesCall)
	}
}

// system distinguishes the two clusters by the authority of their certificates. A cluster that manages itself may be
// named in the file of the management cluster, too: it is the workload cluster all the same. Every management cluster
// is in that file before anything is changed in it.
func (t Tools) system(kubeconfig []byte, trusted bool) effect.System {
	id := fingerprint(kubeconfig, trusted)
	is := func(file string) bool {
		data, err := t.Files.Read(file)
		return err == nil && (bytes.Equal(data, kubeconfig) || fingerprint(data, false) == id)
	}
	if !is(Kubeconfig) && is(ManagementKubeconfig) {
		return effect.Management
	}
	return effect.Workload
}

// fingerprint identifies the API server behind a kubeconfig's current context, as far as a kubeconfig can. It opens the
// file of an authority for a trusted one alone.
func fingerprint(kubeconfig []byte, trusted bool) [sha256.Size]byte {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return sha256.Sum256(kubeconfig)
	}
	authority := config.CAData
	if len(authority) == 0 && config.CAFile != "" && trusted {
		authority, _ = os.ReadFile(config.CAFile) // one that cannot be read is reported by the code that connects
	}
	if len(authority) == 0 {
		authority = []byte(config.Host)
	}
	return sha256.Sum256(authority)
}

// clusterctlRecorded is the real Tools.Clusterctl.
//
// The library is made for cores of the contract v1beta2, and refuses a management cluster of v1beta1 unless an option
// names that contract. Its source marks the option as one for its own tests; there it decides three comparisons and nothing
// else: the version in which the installed core stores its objects, the contract of the core after an upgrade, and the
// contracts of the providers beside it. No object is read or written in another version because of it.
func (t Tools) clusterctlRecorded(ctx context.Context, c clusterctlconfig.Client, contract string) (Clusterctl, error) {
	var options []cluster.Option
	if contract != "" {
		options = append(options, cluster.InjectCurrentContractVersion(contract))
	}
	clusters := func(in clusterctl.ClusterClientFactoryInput) (cluster.Client, error) {
		kubeconfig := cluster.Kubeconfig(in.Kubeconfig)
		data, err := os.ReadFile(kubeconfig.Path)
		if err != nil {
			return nil, err
		}
		trusted, err := t.accept(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kubeconfig.Path, err)
		}
		return cluster.New(kubeconfig, c, append(options, cluster.InjectYamlProcessor(in.Processor),
			cluster.InjectProxy(newSharingProxy(kubeconfig, t.recorded(data, trusted))))...), nil
	}
	client, err := clusterctl.New(ctx, "", clusterctl.InjectConfig(c), clusterctl.InjectClusterClientFactory(clusters))
	return recordedClusterctl{client, c, clusters}, err
}

// recordedClusterctl is clusterctl's client, and what it makes for itself.
type recordedClusterctl struct {
	clusterctl.Client
	config   clusterctlconfig.Client
	clusters clusterctl.ClusterClientFactory
}

// CoreContract implements Clusterctl.
func (c recordedClusterctl) CoreContract(ctx context.Context, version string) (string, error) {
	core, err := c.config.Providers().Get(clusterctlconfig.ClusterAPIProviderName, clusterctlapi.CoreProviderType)
	if err != nil {
		return "", err
	}
	parsed, err := versions.ParseSemantic(version)
	if err != nil {
		return "", err
	}
	releases, err := repository.New(ctx, core, c.config)
	if err != nil {
		return "", err
	}
	metadata, err := releases.Metadata(version).Get(ctx)
	if err != nil {
		return "", err
	}
	series := metadata.GetReleaseSeriesForVersion(parsed)
	if series == nil {
		return "", fmt.Errorf("the metadata of Cluster API %s (%s) do not name its series", version, core.URL())
	}
	return series.Contract, nil
}

// CertManager implements Clusterctl.
func (c recordedClusterctl) CertManager(kubeconfig string) (cluster.CertManagerClient, error) {
	at, err := c.clusters(clusterctl.ClusterClientFactoryInput{Kubeconfig: clusterctl.Kubeconfig{Path: kubeconfig}})
	if err != nil {
		return nil, err
	}
	return at.CertManager(), nil
}

// sharingProxy is clusterctl's access to a cluster: one client for everything that it does with it, whose changes are
// recorded. clusterctl wants a new client for each object, which would ask the API again what kinds there are.
type sharingProxy struct {
	cluster.Proxy
	wrap transport.WrapperFunc // nil: changes are not recorded

	mu     sync.Mutex
	client client.Client // nil: none was made yet
}

func newSharingProxy(kubeconfig cluster.Kubeconfig, wrap transport.WrapperFunc) *sharingProxy {
	return &sharingProxy{Proxy: cluster.NewProxy(kubeconfig), wrap: wrap}
}

// GetConfig implements cluster.Proxy.
func (p *sharingProxy) GetConfig() (*rest.Config, error) {
	config, err := p.Proxy.GetConfig()
	if err != nil {
		return nil, err
	}
	if p.wrap != nil {
		config.Wrap(p.wrap)
	}
	return config, nil
}

// NewClient implements cluster.Proxy.
func (p *sharingProxy) NewClient(ctx context.Context) (client.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	plain, err := p.Proxy.NewClient(ctx)
	if err != nil {
		return nil, err
	}
	config, err := p.GetConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // clusterctl's limit is one for each of its clients; the API server has limits of its own
	// clusterctl's scheme is internal to it, but its own client tells it.
	made, err := client.New(config, client.Options{Scheme: plain.Scheme()})
	if err == nil {
		p.client = made
	}
	return made, err
}

// uploadRecorded is the real Tools.Upload.
func (t Tools) uploadRecorded(ctx context.Context, c *hcloud.Client, o hcloudimages.UploadOptions) (*hcloud.Image,
	error) {
	handler, end := t.Effects.SSHCommands(contextlogger.From(ctx).Handler())
	image, err := hetzner.ByRescueSystem(contextlogger.New(ctx, slog.New(handler)), c, o)
	end(err)
	return image, err
}
