package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Variable is one entry of the configuration, for code that reads it from an environment, arguments or a file.
type Variable struct {
	Name    string // in the environment and as KEY=VALUE: "CLUSTER_NAME"
	Field   string // in bootstrap.yaml: "clusterName"
	Doc     string // one sentence for the usage text
	Default string // as it would be written; empty: none
}

// fieldNames are the names of Config's fields in Go, by those in bootstrap.yaml.
var fieldNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		names[field.Tag.Get("yaml")] = field.Name
	}
	return names
})

// Pointer is the address of the variable's value in c.
func (v Variable) Pointer(c *Config) any {
	return reflect.ValueOf(c).Elem().FieldByName(fieldNames()[v.Field]).Addr().Interface()
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

// variables are Variables without their defaults, which are made with them: the fields of Config, in their order.
func variables() []Variable {
	var vs []Variable
	for _, described := range [][2]string{
		{"CLUSTER_NAME", "name of the cluster, prefix of everything created for it"},
		{"LOCATION", "Hetzner location of servers and load balancer; several, the preferred first: the first that has a " +
			"server type in stock"},
		{"SERVER_TYPE", "Hetzner server type of the control plane; several, the preferred first: the first in stock"},
		{"CONTROL_PLANE_REPLICAS", "number of control plane servers, odd"},
		{"WORKERS", "number of servers of the worker pool general; in bootstrap.yaml also a list of worker pools"},
		{"WORKER_SERVER_TYPE", "Hetzner server type of worker pools that name none, as SERVER_TYPE; default: that of the " +
			"control plane"},
		{"ADDONS", "shipped add-ons to install: hcloud-csi, cluster-autoscaler, metrics-server, gitea; in bootstrap.yaml " +
			"also a list with Helm releases of your own"},
		{"SPREAD", "what the control plane's servers are spread over: host (of one location), or location (all of " +
			"LOCATION that have the server type in stock)"},
		{"LOAD_BALANCER_TYPE", "Hetzner load balancer type"},
		{"CONTROL_PLANE_ENDPOINT", "address of the Kubernetes API: primary-ip (kept when the load balancer is deleted), " +
			"load-balancer, or a host name; for new clusters"},
		{"NETWORK_CIDR", "the cluster's private network"},
		{"CONTROL_PLANE_CIDR", "the servers' subnet, inside the network"},
		{"POD_CIDR", "addresses of Pods, a /24 for each node"},
		{"SERVICE_CIDR", "addresses of Services, a /12 to a /28"},
		{"IMAGE_NAME", "label caph-image-name of the Talos snapshot (default talos-<architecture>-<TALOS_VERSION>)"},
		{"IMAGE_ARCHITECTURES", "amd64, arm64: create the image for these too, besides the servers' architecture"},
		{"OIDC_ISSUER_URL", "OpenID Connect issuer that the API server trusts; needs OIDC_CLIENT_ID"},
		{"OIDC_CLIENT_ID", "client ID at the OpenID Connect issuer"},

		{"VERSIONS", "version set that versions come from which are not configured by themselves"},
		{"TALOS_VERSION", "Talos Linux"},
		{"KUBERNETES_VERSION", "Kubernetes of the cluster"},
		{"CAPI_VERSION", "Cluster API core provider"},
		{"CAPH_VERSION", "Cluster API provider Hetzner"},
		{"CABPT_VERSION", "Cluster API bootstrap provider Talos"},
		{"CACPPT_VERSION", "Cluster API control plane provider Talos"},
		{"CILIUM_VERSION", "Cilium chart"},
		{"HCLOUD_CCM_VERSION", "Hetzner cloud controller manager chart"},
		{"TALOS_CCM_VERSION", "Talos cloud controller manager chart"},

		{"KIND_NODE_IMAGE", "node image of the kind management cluster"},
		{"MANAGEMENT", "what the management cluster is: kind (needs a container engine), local (processes of this " +
			"machine, Linux) or existing (that of MANAGEMENT_KUBECONFIG, or in a Pod the cluster that it runs in); " +
			"default: existing where that is set, else kind"},
		{"MANAGEMENT_KUBECONFIG", "kubeconfig of an existing management cluster; empty with MANAGEMENT=existing in a " +
			"Pod: the cluster that it runs in"},
		{"NAMESPACE", "namespace of the Cluster API objects in the management cluster; for new clusters"},
		{"PIVOT", "false: the cluster stays managed from the management cluster, and the target all ends without pivot, " +
			"access and clean"},
		{"PROVIDER_REPOSITORY", "folder with the providers' releases in clusterctl's layout, in place of the internet"},
		{"CERT_MANAGER_URL", "cert-manager.yaml, address or absolute path"},
		{"CERT_MANAGER_VERSION", "version of CERT_MANAGER_URL"},
		{"CILIUM_REPOSITORY", "chart repository of Cilium, http(s):// or oci://"},
		{"CILIUM_RELEASE", "name of Cilium's Helm release in kube-system, where a cluster that was adopted has another " +
			"(default: cilium)"},
		{"HCLOUD_CCM_RELEASE", "the same of the Hetzner cloud controller manager (default: " +
			"hcloud-cloud-controller-manager)"},
		{"TALOS_CCM_RELEASE", "the same of the Talos cloud controller manager (default: talos-cloud-controller-manager)"},
		{"HCLOUD_CCM_REPOSITORY", "chart repository of the Hetzner cloud controller manager"},
		{"TALOS_CCM_REPOSITORY", "chart repository of the Talos cloud controller manager"},
		{"ADDONS_REPOSITORY", "chart repository of the shipped add-ons, such as a mirror"},
		{"GITEA", "true: the add-on gitea, Git hosting in the cluster, and a Secret with a token of it"},
		{"GITEA_TOKEN_SCOPES", "scopes of Gitea's token, with commas"},
		{"GITEA_REPOSITORY", "repository in Gitea that Flux applies where GIT_URL is empty; created where it is missing"},
		{"GITOPS", "flux: install Flux, which applies a Git repository to the cluster; empty: nothing"},
		{"FLUX_VERSION", "Flux"},
		{"FLUX_REPOSITORY", "releases of Flux, a mirror for example: address or absolute path of a folder for each " +
			"version, with install.yaml"},
		{"GIT_URL", "repository that Flux applies: https://host/path.git, ssh://git@host/path.git, or " +
			"oci://registry/path; empty with GITEA=true: GITEA_REPOSITORY"},
		{"GIT_BRANCH", "its branch"},
		{"OCI_TAG", "tag that is read, where GIT_URL is oci://registry/path"},
		{"GIT_PATH", "folder of the repository with the cluster's manifests (default clusters/<CLUSTER_NAME>)"},
		{"GIT_USER", "user that goes with the token"},
		{"GIT_TOKEN_FILE", "file with a token that reads the repository"},
		{"GIT_TOKEN_COMMAND", "command that prints it, of a password manager"},
		{"GIT_KEY_FILE", "file with an SSH deploy key that reads the repository"},
		{"GIT_KNOWN_HOSTS_FILE", "file with the public keys of the repository's host, as ssh-keyscan prints them"},
		{"LAB_PROGRAMS", "where the lab's programs come from: auto (a set that is there, else images where registries " +
			"answer, else source), images (at the configured versions) or source"},
		{"REGISTRY_CONFIG", "file with mirrors and private registries of images (default: registry.yaml beside the " +
			"configuration, where it exists)"},
		{"FIREWALL_ALLOW", "ranges, and auto for this machine's own address, that the firewall lets in besides private " +
			"ones"},

		{"BACKUP_TO", "where backups go: a folder, or s3://bucket/prefix"},
		{"BACKUP_KEEP", "how many backups of the cluster stay there; 0: all"},
		{"BACKUP_RECIPIENTS", "public keys that open backups, age1… or ssh-ed25519 …, separated by commas"},
		{"BACKUP_PASSPHRASE_FILE", "file with a passphrase that opens backups, in place of public keys"},
		{"BACKUP_PASSPHRASE_COMMAND", "command that prints it, of a password manager"},
		{"BACKUP_IDENTITY_FILE", "file with the secret keys of age, or an SSH one, that open backups and authenticate " +
			"them; a machine that only writes them needs no more than BACKUP_AUTHENTICATION_KEY_FILE"},
		{"BACKUP_AUTHENTICATION_KEY_FILE", "file with the key that authenticates the backups of this cluster, as backup " +
			"key writes it; it opens none"},
		{"BACKUP_S3_ENDPOINT", "address of the S3 store, as https://nbg1.your-objectstorage.com"},
		{"BACKUP_S3_REGION", "region of the S3 store, where it wants one"},

		{"STATE", "where the state of the cluster is kept besides the state folder: file:///folder, s3://bucket/prefix " +
			"or k8s://namespace"},
		{"STATE_RECIPIENTS", "public keys that open the state, besides those of STATE_IDENTITY_FILE, separated by commas"},
		{"STATE_IDENTITY_FILE", "file with the secret keys of age, or an SSH one, that open the state"},
		{"STATE_S3_ENDPOINT", "address of the S3 store of the state, as https://nbg1.your-objectstorage.com"},
		{"STATE_S3_REGION", "region of the S3 store of the state, where it wants one"},
		{"STATE_KUBECONFIG", "kubeconfig of the cluster of k8s://; without it the one that this process runs in"},
		{"STATE_LEASE", "how long a run that holds the state may give no sign before another takes its place"},
		{"STATE_WAIT", "how long a run waits for another one to give the state back"},

		{"PREFLIGHT_TIMEOUT", "longest time for preflight"},
		{"IMAGE_TIMEOUT", "longest time for image, for each architecture"},
		{"MANAGEMENT_TIMEOUT", "longest time for kind-create"},
		{"PROVIDERS_TIMEOUT", "longest time for capi-init"},
		{"LOAD_BALANCER_TIMEOUT", "longest time for apply"},
		{"CONTROL_PLANE_TIMEOUT", "longest time for wait-cp, kubeconfig and talosconfig, each"},
		{"RELEASE_TIMEOUT", "longest time for cilium, hcloud-ccm, talos-ccm, flux, flux-sync and wait-releases, each"},
		{"GITEA_TIMEOUT", "longest time for Gitea's API to answer in gitea-token and gitea-repository, each; less than " +
			"the release of Gitea may take"},
		{"NODES_TIMEOUT", "longest time for wait-nodes, wait-workers and wait-machines, each"},
		{"FIREWALL_TIMEOUT", "longest time for firewall-apply"},
		{"DESTROY_TIMEOUT", "longest time for destroy, through Cluster API and again by the Hetzner API"},
		{"BOOTSTRAP_TIMEOUT", "longest time for a run; not less than its steps may take one after another; 0s: theirs " +
			"bound it"},
	} {
		name, doc := described[0], described[1]
		vs = append(vs, Variable{Name: name, Field: camelCase(name), Doc: doc})
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
