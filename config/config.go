package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Config is everything a bootstrap is made from, besides the secrets and clients in Tools. It is plain data: the
// zero value is not useful, start from Defaults.
//
// Every field has one name in three spellings (see Variables): CLUSTER_NAME in the environment and as KEY=VALUE,
// clusterName in bootstrap.yaml.
type Config struct {
	// The cluster at Hetzner.
	// DNS label; the prefix of everything made for the cluster
	ClusterName string `json:"clusterName" yaml:"clusterName"`
	// Hetzner locations, the preferred first, separated by commas: servers and load balancer are created in the first that
	// has a server type in stock
	Location string `json:"location" yaml:"location"`
	// Hetzner server types of the control plane, the preferred first, separated by commas: the first in stock is used
	ServerType string `json:"serverType" yaml:"serverType"`
	// odd, for etcd's quorum
	ControlPlaneReplicas int `json:"controlPlaneReplicas" yaml:"controlPlaneReplicas"`
	// worker pools; none: the control plane's servers carry the load
	Workers WorkerPools `json:"workers" yaml:"workers"`
	// Hetzner server types of worker pools that name none, as ServerType; empty: ServerType
	WorkerServerType string `json:"workerServerType" yaml:"workerServerType"`
	// Helm releases of the operator's choice
	Addons Addons `json:"addons" yaml:"addons"`
	// what the control plane's servers are spread over: SpreadHost or SpreadLocation
	Spread string `json:"spread" yaml:"spread"`
	// Hetzner load balancer type
	LoadBalancerType string `json:"loadBalancerType" yaml:"loadBalancerType"`
	// how the Kubernetes API is addressed: "primary-ip", "load-balancer", or a host name; see Config.EndpointHostName
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint" yaml:"controlPlaneEndpoint"`
	// the private network; holds the three below
	NetworkCIDR string `json:"networkCidr" yaml:"networkCidr"`
	// the servers' subnet; etcd listens here
	ControlPlaneCIDR string `json:"controlPlaneCidr" yaml:"controlPlaneCidr"`
	// addresses of Pods
	PodCIDR string `json:"podCidr" yaml:"podCidr"`
	// addresses of Services
	ServiceCIDR string `json:"serviceCidr" yaml:"serviceCidr"`
	// label caph-image-name of the Talos snapshot; empty: see Config.Image
	ImageName string `json:"imageName" yaml:"imageName"`
	// "amd64,arm64": make the image for these besides the servers'; empty: for theirs alone
	ImageArchitectures string `json:"imageArchitectures" yaml:"imageArchitectures"`
	// optional, together with OIDCClientID
	OIDCIssuerURL string `json:"oidcIssuerUrl" yaml:"oidcIssuerUrl"`
	// optional, together with OIDCIssuerURL
	OIDCClientID string `json:"oidcClientId" yaml:"oidcClientId"`

	// The version matrix.
	// name of the version set that a version comes from where it is not configured by itself; empty: the table's default
	Versions          string `json:"versions" yaml:"versions"`
	TalosVersion      string `json:"talosVersion" yaml:"talosVersion"`
	KubernetesVersion string `json:"kubernetesVersion" yaml:"kubernetesVersion"`
	CAPIVersion       string `json:"capiVersion" yaml:"capiVersion"`
	CAPHVersion       string `json:"caphVersion" yaml:"caphVersion"`
	CABPTVersion      string `json:"cabptVersion" yaml:"cabptVersion"`
	CACPPTVersion     string `json:"cacpptVersion" yaml:"cacpptVersion"`
	CiliumVersion     string `json:"ciliumVersion" yaml:"ciliumVersion"`
	HCloudCCMVersion  string `json:"hcloudCcmVersion" yaml:"hcloudCcmVersion"`
	TalosCCMVersion   string `json:"talosCcmVersion" yaml:"talosCcmVersion"`

	// Where the parts come from.
	// node image of the kind management cluster
	KindNodeImage string `json:"kindNodeImage" yaml:"kindNodeImage"`
	// ManagementKind, ManagementLocal or ManagementExisting; empty: ManagementProvider chooses
	Management string `json:"management" yaml:"management"`
	// kubeconfig of an existing management cluster
	ManagementKubeconfig string `json:"managementKubeconfig" yaml:"managementKubeconfig"`
	// namespace of the Cluster API objects, in the management cluster and, after the pivot, in the cluster itself
	Namespace string `json:"namespace" yaml:"namespace"`
	// PivotTrue or PivotFalse: whether the target all moves the Cluster API objects into the cluster itself
	Pivot string `json:"pivot" yaml:"pivot"`
	// folder in clusterctl's layout; empty: the URLs of manifests/clusterctl.yaml
	ProviderRepository string `json:"providerRepository" yaml:"providerRepository"`
	// cert-manager.yaml, address or absolute path; empty: clusterctl's own
	CertManagerURL string `json:"certManagerUrl" yaml:"certManagerUrl"`
	// version of CertManagerURL; empty: clusterctl's own
	CertManagerVersion string `json:"certManagerVersion" yaml:"certManagerVersion"`
	// chart repository, https:// or oci://; empty: that of the folder bootstrap's charts.go
	CiliumRepository string `json:"ciliumRepository" yaml:"ciliumRepository"`
	// name of its Helm release, where a cluster that was adopted has another; empty: that of the folder bootstrap's
	// charts.go
	CiliumRelease string `json:"ciliumRelease" yaml:"ciliumRelease"`
	// as above
	HCloudCCMRelease string `json:"hcloudCcmRelease" yaml:"hcloudCcmRelease"`
	// as above
	TalosCCMRelease string `json:"talosCcmRelease" yaml:"talosCcmRelease"`
	// chart repository, as CiliumRepository
	HCloudCCMRepository string `json:"hcloudCcmRepository" yaml:"hcloudCcmRepository"`
	// as above
	TalosCCMRepository string `json:"talosCcmRepository" yaml:"talosCcmRepository"`
	// chart repository of the shipped add-ons; empty: that of each
	AddonsRepository string `json:"addonsRepository" yaml:"addonsRepository"`

	// Git hosting in the cluster.
	// "true": the add-on gitea and its token; see HasGitea
	Gitea string `json:"gitea" yaml:"gitea"`
	// scopes of the token, with commas
	GiteaTokenScopes string `json:"giteaTokenScopes" yaml:"giteaTokenScopes"`
	// repository of its administrator that Flux applies where GitURL is empty; see GitInGitea
	GiteaRepository string `json:"giteaRepository" yaml:"giteaRepository"`

	// What applies a Git repository to the cluster.
	// GitOpsFlux; empty: nothing does
	GitOps string `json:"gitops" yaml:"gitops"`
	// release of Flux
	FluxVersion string `json:"fluxVersion" yaml:"fluxVersion"`
	// address or absolute path of a folder for each release, with install.yaml
	FluxRepository string `json:"fluxRepository" yaml:"fluxRepository"`
	// address of the repository, https:// or ssh://, or oci:// of a registry; empty: see GitInGitea
	GitURL string `json:"gitUrl" yaml:"gitUrl"`
	// its branch
	GitBranch string `json:"gitBranch" yaml:"gitBranch"`
	// tag that is read, where the repository is one of a registry
	OCITag string `json:"ociTag" yaml:"ociTag"`
	// folder of the repository; empty: see GitFolder
	GitPath string `json:"gitPath" yaml:"gitPath"`
	// user that goes with the token
	GitUser string `json:"gitUser" yaml:"gitUser"`
	// holds a token that reads the repository
	GitTokenFile string `json:"gitTokenFile" yaml:"gitTokenFile"`
	// prints it
	GitTokenCommand string `json:"gitTokenCommand" yaml:"gitTokenCommand"`
	// holds an SSH deploy key
	GitKeyFile string `json:"gitKeyFile" yaml:"gitKeyFile"`
	// holds the public keys of the repository's host
	GitKnownHostsFile string `json:"gitKnownHostsFile" yaml:"gitKnownHostsFile"`

	// Where the lab's programs come from.
	// LabProgramsAuto, LabProgramsImages or LabProgramsSource
	LabPrograms string `json:"labPrograms" yaml:"labPrograms"`
	// file with mirrors and private registries of images; empty: registry.yaml beside the configuration, where it exists
	RegistryConfig string `json:"registryConfig" yaml:"registryConfig"`

	// Who may reach the Kubernetes and the Talos API on the servers' public addresses besides private ranges: ranges and
	// "auto" (this machine's own address), separated by commas.
	FirewallAllow string `json:"firewallAllow" yaml:"firewallAllow"`

	// Where backups go, and who can open them.
	// folder, or s3://bucket/prefix
	BackupTo string `json:"backupTo" yaml:"backupTo"`
	// how many of this cluster's stay there; 0: all
	BackupKeep int `json:"backupKeep" yaml:"backupKeep"`
	// public keys, age's or SSH's, separated by commas
	BackupRecipients string `json:"backupRecipients" yaml:"backupRecipients"`
	// holds the passphrase, in place of public keys
	BackupPassphraseFile string `json:"backupPassphraseFile" yaml:"backupPassphraseFile"`
	// prints it
	BackupPassphraseCommand string `json:"backupPassphraseCommand" yaml:"backupPassphraseCommand"`
	// holds the secret keys that open and authenticate backups; not needed to make one
	BackupIdentityFile string `json:"backupIdentityFile" yaml:"backupIdentityFile"`
	// holds the key that authenticates the backups of this cluster, and opens nothing; empty: BackupIdentityFile does
	BackupAuthenticationKeyFile string `json:"backupAuthenticationKeyFile" yaml:"backupAuthenticationKeyFile"`
	// address of the S3 store
	BackupS3Endpoint string `json:"backupS3Endpoint" yaml:"backupS3Endpoint"`
	// its region; empty: whatever it says
	BackupS3Region string `json:"backupS3Region" yaml:"backupS3Region"`

	// Where the state of the cluster is kept besides the state folder, and who can read it.
	// file:///folder, s3://bucket/prefix or k8s://namespace; empty: in the state folder alone
	State string `json:"state" yaml:"state"`
	// public keys besides those of the identities, age's or SSH's, separated by commas
	StateRecipients string `json:"stateRecipients" yaml:"stateRecipients"`
	// holds the secret keys that open the state
	StateIdentityFile string `json:"stateIdentityFile" yaml:"stateIdentityFile"`
	// address of the S3 store
	StateS3Endpoint string `json:"stateS3Endpoint" yaml:"stateS3Endpoint"`
	// its region; empty: whatever it says
	StateS3Region string `json:"stateS3Region" yaml:"stateS3Region"`
	// opens the cluster of k8s://; empty: the one that this process runs in
	StateKubeconfig string `json:"stateKubeconfig" yaml:"stateKubeconfig"`
	// how long the holder of the state may give no sign before another run takes its place
	StateLease Duration `json:"stateLease" yaml:"stateLease"`
	// how long a run waits for another one to give the state back
	StateWait Duration `json:"stateWait" yaml:"stateWait"`

	// How long each step may take before it fails with what it last saw. Not part of what a step is made from:
	// changing them re-runs nothing.
	// preflight
	PreflightTimeout Duration `json:"preflightTimeout" yaml:"preflightTimeout"`
	// image: it is made, and available, for each architecture
	ImageTimeout Duration `json:"imageTimeout" yaml:"imageTimeout"`
	// kind-create
	ManagementTimeout Duration `json:"managementTimeout" yaml:"managementTimeout"`
	// capi-init
	ProvidersTimeout Duration `json:"providersTimeout" yaml:"providersTimeout"`
	// apply: network and load balancer exist
	LoadBalancerTimeout Duration `json:"loadBalancerTimeout" yaml:"loadBalancerTimeout"`
	// wait-cp, and the kubeconfig and talosconfig before it
	ControlPlaneTimeout Duration `json:"controlPlaneTimeout" yaml:"controlPlaneTimeout"`
	// cilium, hcloud-ccm, talos-ccm, each
	ReleaseTimeout Duration `json:"releaseTimeout" yaml:"releaseTimeout"`
	// Gitea's API to answer, in gitea-token
	GiteaTimeout Duration `json:"giteaTimeout" yaml:"giteaTimeout"`
	// wait-nodes
	NodesTimeout Duration `json:"nodesTimeout" yaml:"nodesTimeout"`
	// firewall-apply: every server reports it
	FirewallTimeout Duration `json:"firewallTimeout" yaml:"firewallTimeout"`
	// destroy: through Cluster API, and again by the Hetzner API
	DestroyTimeout Duration `json:"destroyTimeout" yaml:"destroyTimeout"`

	// BootstrapTimeout bounds a run as a whole, from its first step to its last; 0: the steps' own bounds are enough. It
	// is refused where these may add up to more.
	BootstrapTimeout Duration `json:"bootstrapTimeout" yaml:"bootstrapTimeout"`

	// replaced are configured versions that Replace wrote others in place of, by variable.
	replaced map[string]string

	// table is what is known of versions; nil: Shipped.
	table *Table
}

// Where the lab's programs come from: values of Config.LabPrograms.
const (
	// LabProgramsAuto uses a set that is there; else images, where their registries answer within seconds; else source.
	LabProgramsAuto = "auto"
	// LabProgramsImages uses the programs in the projects' official images, at the configured versions.
	LabProgramsImages = "images"
	// LabProgramsSource builds the programs from source, at the versions of the lab's go.mod.
	LabProgramsSource = "source"
)

// DefaultNamespace is the default of Config.Namespace, as in the guide.
const DefaultNamespace = "default"

// TokenSecretName and TokenSecretKey name the Secret with the Hetzner token in the management cluster, as
// spec.hetznerSecretRef of manifests/cluster.yaml tells CAPH.
const (
	TokenSecretName = "hetzner"
	TokenSecretKey  = "hcloud"
)

// CCMSecretName is the Secret in kube-system with the token and the network that hcloud-ccm reads.
const CCMSecretName = "hcloud"

// Defaults is the configuration of the guide's tables, with the default version set of the shipped table.
func Defaults() Config { return DefaultsOf(Shipped()) }

// defaults are Defaults without versions.
//
// The time-outs are sized for the real cloud: a server takes one to two minutes from order to Talos's answer, etcd
// and the images of three nodes as much again, and the first pull of the providers' images a few minutes on a slow
// line.
func defaults() Config {
	return Config{
		ClusterName:          "k8s",
		Namespace:            DefaultNamespace,
		Pivot:                PivotTrue,
		Location:             "nbg1",
		ServerType:           "cx33",
		Spread:               SpreadHost,
		LabPrograms:          LabProgramsAuto,
		ControlPlaneReplicas: 3,
		LoadBalancerType:     "lb11",
		ControlPlaneEndpoint: EndpointPrimaryIP,
		NetworkCIDR:          "10.10.0.0/16",
		ControlPlaneCIDR:     "10.10.64.0/25",
		PodCIDR:              "10.10.128.0/17",
		ServiceCIDR:          "10.10.96.0/20",

		// The Kubernetes 1.33 image released with kind v0.31.0: the cores v1.10 to v1.14 are tested with it, and kind's own
		// default is 1.35.
		KindNodeImage: "kindest/node:v1.33.7@sha256:d26ef333bdb2cbe9862a0f7c3803ecc7b4303d8cea8e814b481b09949d353040",

		FluxVersion:    DefaultFluxVersion,
		FluxRepository: defaultFluxRepository,
		GitBranch:      defaultGitBranch,
		GitUser:        defaultGitUser,
		OCITag:         defaultOCITag,

		GiteaTokenScopes: "read:repository",
		GiteaRepository:  "fleet",

		BackupTo: "backups",

		StateLease: minutes(2),
		StateWait:  minutes(30),

		PreflightTimeout:    minutes(1),
		ImageTimeout:        minutes(15),
		ManagementTimeout:   minutes(10),
		ProvidersTimeout:    minutes(15),
		LoadBalancerTimeout: minutes(10),
		ControlPlaneTimeout: minutes(25),
		ReleaseTimeout:      minutes(15),
		GiteaTimeout:        minutes(5),
		NodesTimeout:        minutes(15),
		FirewallTimeout:     minutes(5),
		DestroyTimeout:      minutes(10),
	}
}

// Image is the value of the label caph-image-name that CAPH looks for: ImageName, or the guide's name made of the
// architecture ("amd64", "arm64") and the Talos version.
func (c Config) Image(architecture string) string {
	if c.ImageName != "" {
		return c.ImageName
	}
	return fmt.Sprintf("talos-%s-%s", architecture, c.TalosVersion)
}

// SchematicImage is the same for an image that is made from a schematic of bootstrap/schematics; empty: Image.
func (c Config) SchematicImage(schematic, architecture string) string {
	if schematic == "" {
		return c.Image(architecture)
	}
	return c.Image(architecture) + "-" + schematic
}

// Schematics are the schematics of the worker pools, each once, in the order of the pools.
func (c Config) Schematics() (names []string) {
	for _, p := range c.Workers {
		if p.Schematic != "" && !slices.Contains(names, p.Schematic) {
			names = append(names, p.Schematic)
		}
	}
	return names
}

// ImageArchitectures are the architectures that Hetzner has servers of, as images call them.
func ImageArchitectures() []string { return []string{"amd64", "arm64"} }

// TalosOfImage is the version of Talos in the name of an image that Image has made of it; empty: it is none.
func TalosOfImage(image string) string {
	for _, architecture := range ImageArchitectures() {
		if version, is := strings.CutPrefix(image, "talos-"+architecture+"-"); is {
			return version
		}
	}
	return ""
}

// Values of ControlPlaneEndpoint that are no host name.
const (
	// EndpointPrimaryIP gives the load balancer a Primary IP, which outlives it.
	EndpointPrimaryIP = "primary-ip"
	// EndpointLoadBalancer leaves the load balancer and its address to CAPH: with the load balancer the address is lost.
	EndpointLoadBalancer = "load-balancer"
)

// EndpointHostName is the host name by which the cluster's Kubernetes API is addressed; empty: it is an IPv4 address. A
// name stands for the address of a Primary IP, as EndpointPrimaryIP.
func (c Config) EndpointHostName() string {
	if c.ControlPlaneEndpoint == EndpointPrimaryIP || c.ControlPlaneEndpoint == EndpointLoadBalancer {
		return ""
	}
	return c.ControlPlaneEndpoint
}

// ManagementName is the name of the temporary management cluster.
func (c Config) ManagementName() string { return c.ClusterName + "-mgmt" }

// ControlPlaneName is the name of the TalosControlPlane in manifests/cluster.yaml.
func (c Config) ControlPlaneName() string { return c.ClusterName + "-control-plane" }

// Duration is a time.Duration that reads and writes as text ("25m").
type Duration time.Duration

func minutes(n int) Duration { return Duration(time.Duration(n) * time.Minute) }

// D is the duration as Go's own type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String writes whole minutes and hours without their empty rest: "25m", not "25m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it as 90s, 25m or 1h30m", text)
	}
	*d = Duration(v)
	return nil
}
