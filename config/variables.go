package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Variable is one entry of the configuration, for code that reads it from an environment, arguments or a file.
type Variable struct {
	Name    string // in the environment and as KEY=VALUE: "CLUSTER_NAME"
	Field   string // in bootstrap.yaml: "clusterName"
	Doc     string // one sentence for the usage text
	Default string // as it would be written; empty: none

	Pointer func(*Config) any
}

// Get is the variable's value in c, as it would be written.
func (v Variable) Get(c Config) string {
	switch f := v.Pointer(&c).(type) {
	case *string:
		return *f
	case *int:
		return strconv.Itoa(*f)
	case *Duration:
		return f.String()
	case *WorkerPools:
		return f.String()
	case *Addons:
		return f.String()
	default:
		panic(fmt.Sprintf("steps: variable %s has no text form", v.Name)) // a field type that TestVariables would have met
	}
}

// Set reads value into c. It refuses what has the wrong type; Config.Validate judges the rest.
func (v Variable) Set(c *Config, value string) error {
	switch f := v.Pointer(c).(type) {
	case *string:
		*f = value
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%s: %q is not a whole number", v.Name, value)
		}
		*f = n
	case *Duration:
		if err := f.UnmarshalText([]byte(value)); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	case *WorkerPools:
		if err := f.set(value); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	case *Addons:
		f.set(value)
	default:
		panic(fmt.Sprintf("steps: variable %s has no text form", v.Name))
	}
	return nil
}

// Variables lists every variable of the configuration in the order of the documentation.
func Variables() []Variable {
	vs, defaults := variables(), Defaults()
	for i := range vs {
		vs[i].Default = vs[i].Get(defaults)
	}
	return vs
}

// variables are Variables without their defaults, which are made with them.
func variables() []Variable {
	vs := []Variable{
		{Name: "CLUSTER_NAME", Doc: "name of the cluster, prefix of everything created for it",
			Pointer: func(c *Config) any { return &c.ClusterName }},
		{Name: "LOCATION", Doc: "Hetzner location of servers and load balancer; several, the preferred first: the first " +
			"that has a server type in stock",
			Pointer: func(c *Config) any { return &c.Location }},
		{Name: "SERVER_TYPE", Doc: "Hetzner server type of the control plane; several, the preferred first: the first in " +
			"stock",
			Pointer: func(c *Config) any { return &c.ServerType }},
		{Name: "CONTROL_PLANE_REPLICAS", Doc: "number of control plane servers, odd",
			Pointer: func(c *Config) any { return &c.ControlPlaneReplicas }},
		{Name: "WORKERS", Doc: "number of servers of the worker pool general; in bootstrap.yaml also a list of worker pools",
			Pointer: func(c *Config) any { return &c.Workers }},
		{Name: "WORKER_SERVER_TYPE", Doc: "Hetzner server type of worker pools that name none, as SERVER_TYPE; default: that " +
			"of the control plane", Pointer: func(c *Config) any { return &c.WorkerServerType }},
		{Name: "ADDONS", Doc: "shipped add-ons to install: hcloud-csi, cluster-autoscaler, metrics-server, " +
			"gitea; in bootstrap.yaml also a list with Helm releases of your own", Pointer: func(c *Config) any { return &c.Addons }},
		{Name: "SPREAD", Doc: "what the control plane's servers are spread over: host (of one location), or location (all " +
			"of LOCATION that have the server type in stock)", Pointer: func(c *Config) any { return &c.Spread }},
		{Name: "LOAD_BALANCER_TYPE", Doc: "Hetzner load balancer type",
			Pointer: func(c *Config) any { return &c.LoadBalancerType }},
		{Name: "CONTROL_PLANE_ENDPOINT", Doc: "address of the Kubernetes API: primary-ip (kept when the load balancer is " +
			"deleted), load-balancer, or a host name; for new clusters",
			Pointer: func(c *Config) any { return &c.ControlPlaneEndpoint }},
		{Name: "NETWORK_CIDR", Doc: "the cluster's private network", Pointer: func(c *Config) any { return &c.NetworkCIDR }},
		{Name: "CONTROL_PLANE_CIDR", Doc: "the servers' subnet, inside the network",
			Pointer: func(c *Config) any { return &c.ControlPlaneCIDR }},
		{Name: "POD_CIDR", Doc: "addresses of Pods, a /24 for each node", Pointer: func(c *Config) any { return &c.PodCIDR }},
		{Name: "SERVICE_CIDR", Doc: "addresses of Services, a /12 to a /28",
			Pointer: func(c *Config) any { return &c.ServiceCIDR }},
		{Name: "IMAGE_NAME", Doc: "label caph-image-name of the Talos snapshot (default " +
			"talos-<architecture>-<TALOS_VERSION>)", Pointer: func(c *Config) any { return &c.ImageName }},
		{Name: "IMAGE_ARCHITECTURES", Doc: "amd64, arm64: create the image for these too, besides the servers' architecture",
			Pointer: func(c *Config) any { return &c.ImageArchitectures }},
		{Name: "OIDC_ISSUER_URL", Doc: "OpenID Connect issuer that the API server trusts; needs OIDC_CLIENT_ID",
			Pointer: func(c *Config) any { return &c.OIDCIssuerURL }},
		{Name: "OIDC_CLIENT_ID", Doc: "client ID at the OpenID Connect issuer",
			Pointer: func(c *Config) any { return &c.OIDCClientID }},

		{Name: "VERSIONS", Doc: "version set that versions come from which are not configured by themselves",
			Pointer: func(c *Config) any { return &c.Versions }},
		{Name: "TALOS_VERSION", Doc: "Talos Linux", Pointer: func(c *Config) any { return &c.TalosVersion }},
		{Name: "KUBERNETES_VERSION", Doc: "Kubernetes of the cluster",
			Pointer: func(c *Config) any { return &c.KubernetesVersion }},
		{Name: "CAPI_VERSION", Doc: "Cluster API core provider", Pointer: func(c *Config) any { return &c.CAPIVersion }},
		{Name: "CAPH_VERSION", Doc: "Cluster API provider Hetzner", Pointer: func(c *Config) any { return &c.CAPHVersion }},
		{Name: "CABPT_VERSION", Doc: "Cluster API bootstrap provider Talos",
			Pointer: func(c *Config) any { return &c.CABPTVersion }},
		{Name: "CACPPT_VERSION", Doc: "Cluster API control plane provider Talos",
			Pointer: func(c *Config) any { return &c.CACPPTVersion }},
		{Name: "CILIUM_VERSION", Doc: "Cilium chart", Pointer: func(c *Config) any { return &c.CiliumVersion }},
		{Name: "HCLOUD_CCM_VERSION", Doc: "Hetzner cloud controller manager chart",
			Pointer: func(c *Config) any { return &c.HCloudCCMVersion }},
		{Name: "TALOS_CCM_VERSION", Doc: "Talos cloud controller manager chart",
			Pointer: func(c *Config) any { return &c.TalosCCMVersion }},

		{Name: "KIND_NODE_IMAGE", Doc: "node image of the kind management cluster",
			Pointer: func(c *Config) any { return &c.KindNodeImage }},
		{Name: "MANAGEMENT", Doc: "what the management cluster is: kind (needs a container engine), local (processes of " +
			"this machine, Linux) or existing (that of MANAGEMENT_KUBECONFIG, or in a Pod the cluster that it " +
			"runs in); default: existing where that is set, else kind",
			Pointer: func(c *Config) any { return &c.Management }},
		{Name: "MANAGEMENT_KUBECONFIG", Doc: "kubeconfig of an existing management cluster; empty with MANAGEMENT=existing in a " +
			"Pod: the cluster that it runs in",
			Pointer: func(c *Config) any { return &c.ManagementKubeconfig }},
		{Name: "NAMESPACE", Doc: "namespace of the Cluster API objects in the management cluster; for new clusters",
			Pointer: func(c *Config) any { return &c.Namespace }},
		{Name: "PIVOT", Doc: "false: the cluster stays managed from the management cluster, and the target all ends without " +
			"pivot, access and clean", Pointer: func(c *Config) any { return &c.Pivot }},
		{Name: "PROVIDER_REPOSITORY", Doc: "folder with the providers' releases in clusterctl's layout, in place of " +
			"the internet", Pointer: func(c *Config) any { return &c.ProviderRepository }},
		{Name: "CERT_MANAGER_URL", Doc: "cert-manager.yaml, address or absolute path",
			Pointer: func(c *Config) any { return &c.CertManagerURL }},
		{Name: "CERT_MANAGER_VERSION", Doc: "version of CERT_MANAGER_URL",
			Pointer: func(c *Config) any { return &c.CertManagerVersion }},
		{Name: "CILIUM_REPOSITORY", Doc: "chart repository of Cilium, http(s):// or oci://",
			Pointer: func(c *Config) any { return &c.CiliumRepository }},
		{Name: "HCLOUD_CCM_REPOSITORY", Doc: "chart repository of the Hetzner cloud controller manager",
			Pointer: func(c *Config) any { return &c.HCloudCCMRepository }},
		{Name: "TALOS_CCM_REPOSITORY", Doc: "chart repository of the Talos cloud controller manager",
			Pointer: func(c *Config) any { return &c.TalosCCMRepository }},
		{Name: "ADDONS_REPOSITORY", Doc: "chart repository of the shipped add-ons, such as a mirror",
			Pointer: func(c *Config) any { return &c.AddonsRepository }},
		{Name: "GITEA", Doc: "true: the add-on gitea, Git hosting in the cluster, and a Secret with a token of it",
			Pointer: func(c *Config) any { return &c.Gitea }},
		{Name: "GITEA_TOKEN_SCOPES", Doc: "scopes of Gitea's token, with commas",
			Pointer: func(c *Config) any { return &c.GiteaTokenScopes }},
		{Name: "GITEA_REPOSITORY", Doc: "repository in Gitea that Flux applies where GIT_URL is empty; created where it is " +
			"missing", Pointer: func(c *Config) any { return &c.GiteaRepository }},
		{Name: "GITOPS", Doc: "flux: install Flux, which applies a Git repository to the cluster; empty: nothing",
			Pointer: func(c *Config) any { return &c.GitOps }},
		{Name: "FLUX_VERSION", Doc: "Flux", Pointer: func(c *Config) any { return &c.FluxVersion }},
		{Name: "FLUX_REPOSITORY", Doc: "releases of Flux, a mirror for example: address or absolute path of a folder for " +
			"each version, with install.yaml", Pointer: func(c *Config) any { return &c.FluxRepository }},
		{Name: "GIT_URL", Doc: "repository that Flux applies: https://host/path.git, ssh://git@host/path.git, or " +
			"oci://registry/path; empty with GITEA=true: GITEA_REPOSITORY", Pointer: func(c *Config) any { return &c.GitURL }},
		{Name: "GIT_BRANCH", Doc: "its branch", Pointer: func(c *Config) any { return &c.GitBranch }},
		{Name: "OCI_TAG", Doc: "tag that is read, where GIT_URL is oci://registry/path",
			Pointer: func(c *Config) any { return &c.OCITag }},
		{Name: "GIT_PATH", Doc: "folder of the repository with the cluster's manifests (default clusters/<CLUSTER_NAME>)",
			Pointer: func(c *Config) any { return &c.GitPath }},
		{Name: "GIT_USER", Doc: "user that goes with the token", Pointer: func(c *Config) any { return &c.GitUser }},
		{Name: "GIT_TOKEN_FILE", Doc: "file with a token that reads the repository",
			Pointer: func(c *Config) any { return &c.GitTokenFile }},
		{Name: "GIT_TOKEN_COMMAND", Doc: "command that prints it, of a password manager",
			Pointer: func(c *Config) any { return &c.GitTokenCommand }},
		{Name: "GIT_KEY_FILE", Doc: "file with an SSH deploy key that reads the repository",
			Pointer: func(c *Config) any { return &c.GitKeyFile }},
		{Name: "GIT_KNOWN_HOSTS_FILE", Doc: "file with the public keys of the repository's host, as ssh-keyscan prints them",
			Pointer: func(c *Config) any { return &c.GitKnownHostsFile }},
		{Name: "LAB_PROGRAMS", Doc: "where the lab's programs come from: auto (a set that is there, else images where " +
			"registries answer, else source), images (at the configured versions) or source",
			Pointer: func(c *Config) any { return &c.LabPrograms }},
		{Name: "REGISTRY_CONFIG", Doc: "file with mirrors and private registries of images (default: registry.yaml beside " +
			"the configuration, where it exists)", Pointer: func(c *Config) any { return &c.RegistryConfig }},
		{Name: "FIREWALL_ALLOW", Doc: "ranges, and auto for this machine's own address, that the firewall lets in besides " +
			"private ones", Pointer: func(c *Config) any { return &c.FirewallAllow }},

		{Name: "BACKUP_TO", Doc: "where backups go: a folder, or s3://bucket/prefix",
			Pointer: func(c *Config) any { return &c.BackupTo }},
		{Name: "BACKUP_KEEP", Doc: "how many backups of the cluster stay there; 0: all",
			Pointer: func(c *Config) any { return &c.BackupKeep }},
		{Name: "BACKUP_RECIPIENTS", Doc: "public keys that open backups, age1… or ssh-ed25519 …, separated by commas",
			Pointer: func(c *Config) any { return &c.BackupRecipients }},
		{Name: "BACKUP_PASSPHRASE_FILE", Doc: "file with a passphrase that opens backups, in place of public keys",
			Pointer: func(c *Config) any { return &c.BackupPassphraseFile }},
		{Name: "BACKUP_PASSPHRASE_COMMAND", Doc: "command that prints it, of a password manager",
			Pointer: func(c *Config) any { return &c.BackupPassphraseCommand }},
		{Name: "BACKUP_IDENTITY_FILE", Doc: "file with the secret keys of age, or an SSH one, that open backups and " +
			"authenticate them; a machine that only writes them needs no more than BACKUP_AUTHENTICATION_KEY_FILE",
			Pointer: func(c *Config) any { return &c.BackupIdentityFile }},
		{Name: "BACKUP_AUTHENTICATION_KEY_FILE", Doc: "file with the key that authenticates the backups of this cluster, as " +
			"backup key writes it; it opens none", Pointer: func(c *Config) any { return &c.BackupAuthenticationKeyFile }},
		{Name: "BACKUP_S3_ENDPOINT", Doc: "address of the S3 store, as https://nbg1.your-objectstorage.com",
			Pointer: func(c *Config) any { return &c.BackupS3Endpoint }},
		{Name: "BACKUP_S3_REGION", Doc: "region of the S3 store, where it wants one",
			Pointer: func(c *Config) any { return &c.BackupS3Region }},

		{Name: "STATE", Doc: "where the state of the cluster is kept besides the state folder: file:///folder, " +
			"s3://bucket/prefix or k8s://namespace", Pointer: func(c *Config) any { return &c.State }},
		{Name: "STATE_RECIPIENTS", Doc: "public keys that open the state, besides those of STATE_IDENTITY_FILE, separated by " +
			"commas", Pointer: func(c *Config) any { return &c.StateRecipients }},
		{Name: "STATE_IDENTITY_FILE", Doc: "file with the secret keys of age, or an SSH one, that open the state",
			Pointer: func(c *Config) any { return &c.StateIdentityFile }},
		{Name: "STATE_S3_ENDPOINT", Doc: "address of the S3 store of the state, as https://nbg1.your-objectstorage.com",
			Pointer: func(c *Config) any { return &c.StateS3Endpoint }},
		{Name: "STATE_S3_REGION", Doc: "region of the S3 store of the state, where it wants one",
			Pointer: func(c *Config) any { return &c.StateS3Region }},
		{Name: "STATE_KUBECONFIG", Doc: "kubeconfig of the cluster of k8s://; without it the one that this process runs in",
			Pointer: func(c *Config) any { return &c.StateKubeconfig }},
		{Name: "STATE_LEASE", Doc: "how long a run that holds the state may give no sign before another takes its place",
			Pointer: func(c *Config) any { return &c.StateLease }},
		{Name: "STATE_WAIT", Doc: "how long a run waits for another one to give the state back",
			Pointer: func(c *Config) any { return &c.StateWait }},

		{Name: "PREFLIGHT_TIMEOUT", Doc: "longest time for preflight",
			Pointer: func(c *Config) any { return &c.PreflightTimeout }},
		{Name: "IMAGE_TIMEOUT", Doc: "longest time for image, for each architecture",
			Pointer: func(c *Config) any { return &c.ImageTimeout }},
		{Name: "MANAGEMENT_TIMEOUT", Doc: "longest time for kind-create",
			Pointer: func(c *Config) any { return &c.ManagementTimeout }},
		{Name: "PROVIDERS_TIMEOUT", Doc: "longest time for capi-init",
			Pointer: func(c *Config) any { return &c.ProvidersTimeout }},
		{Name: "LOAD_BALANCER_TIMEOUT", Doc: "longest time for apply",
			Pointer: func(c *Config) any { return &c.LoadBalancerTimeout }},
		{Name: "CONTROL_PLANE_TIMEOUT", Doc: "longest time for wait-cp, kubeconfig and talosconfig, each",
			Pointer: func(c *Config) any { return &c.ControlPlaneTimeout }},
		{Name: "RELEASE_TIMEOUT", Doc: "longest time for cilium, hcloud-ccm, talos-ccm, flux, flux-sync and wait-releases, " +
			"each",
			Pointer: func(c *Config) any { return &c.ReleaseTimeout }},
		{Name: "GITEA_TIMEOUT", Doc: "longest time for Gitea's API to answer in gitea-token and gitea-repository, each; less " +
			"than the release of Gitea may take",
			Pointer: func(c *Config) any { return &c.GiteaTimeout }},
		{Name: "NODES_TIMEOUT", Doc: "longest time for wait-nodes, wait-workers and wait-machines, each",
			Pointer: func(c *Config) any { return &c.NodesTimeout }},
		{Name: "FIREWALL_TIMEOUT", Doc: "longest time for firewall-apply",
			Pointer: func(c *Config) any { return &c.FirewallTimeout }},
		{Name: "DESTROY_TIMEOUT", Doc: "longest time for destroy, through Cluster API and again by the Hetzner API",
			Pointer: func(c *Config) any { return &c.DestroyTimeout }},
		{Name: "BOOTSTRAP_TIMEOUT", Doc: "longest time for a run; not less than its steps may take one after another; 0s: " +
			"theirs bound it", Pointer: func(c *Config) any { return &c.BootstrapTimeout }},
	}
	for i := range vs {
		vs[i].Field = camelCase(vs[i].Name)
	}
	return vs
}

// camelCase turns CLUSTER_NAME into clusterName.
func camelCase(name string) string {
	words := strings.Split(strings.ToLower(name), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
