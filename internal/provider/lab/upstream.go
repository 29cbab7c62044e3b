package lab

import (
	"cmp"
	"strings"

	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/config"
)

// upstreamProgram is a program of another project and the image that holds it.
type upstreamProgram struct {
	file       string // its name in a set of programs; empty: the lab runs a stand-in in its place
	image      string // without tag
	path       string // in the image, where the entry point does not name the program
	management bool   // it runs in a management cluster, although it is in no set
	module     string // Go module that its manifests, or its version, are of
	// version is the configured one, as the image's tag and the module spell it; empty: none is known.
	version func(config.Config) string
	tag     func(version string) string // nil: the version
}

// etcdVersion is that of Kubernetes v1.32. Talos brings an etcd of its own choice, which no variable names.
const etcdVersion = "v3.5.16"

// upstreamNames are the programs of a set, in messages.
const upstreamNames = "etcd, Kubernetes and the Cluster API providers"

// kubernetesPath is the Go module of the Kubernetes programs.
const kubernetesPath = "k8s.io/kubernetes"

// upstreamPrograms are all programs of others that a cluster of this guide runs besides Talos and Cilium. The tags and
// paths are those of the projects' release images.
func upstreamPrograms() []upstreamProgram {
	kubernetes := func(file string) upstreamProgram {
		return upstreamProgram{file: file, image: "registry.k8s.io/" + file, path: "/usr/local/bin/" + file,
			module: kubernetesPath, version: func(c config.Config) string { return c.KubernetesVersion }}
	}
	certManager := func(name string) upstreamProgram {
		return upstreamProgram{image: "quay.io/jetstack/cert-manager-" + name, management: true,
			version: func(c config.Config) string {
				return cmp.Or(c.CertManagerVersion, clusterctl.CertManagerDefaultVersion)
			}}
	}
	return []upstreamProgram{
		{file: "server", image: "registry.k8s.io/etcd", path: "/usr/local/bin/etcd", module: "go.etcd.io/etcd/server/v3",
			version: func(config.Config) string { return etcdVersion },
			tag:     func(version string) string { return strings.TrimPrefix(version, "v") + "-0" }},
		kubernetes("kube-apiserver"),
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		{file: "cluster-api", image: "registry.k8s.io/cluster-api/cluster-api-controller",
			module:  corePath,
			version: func(c config.Config) string { return c.CAPIVersion }},
		{file: "cluster-api-bootstrap-provider-talos", image: "ghcr.io/siderolabs/cluster-api-talos-controller",
			module:  "github.com/siderolabs/cluster-api-bootstrap-provider-talos",
			version: func(c config.Config) string { return c.CABPTVersion }},
		{file: "cluster-api-control-plane-provider-talos",
			image:   "ghcr.io/siderolabs/cluster-api-control-plane-talos-controller",
			module:  "github.com/siderolabs/cluster-api-control-plane-provider-talos",
			version: func(c config.Config) string { return c.CACPPTVersion }},

		{image: "ghcr.io/syself/caph", management: true,
			version: func(c config.Config) string { return c.CAPHVersion }},
		certManager("controller"), certManager("webhook"), certManager("cainjector"),
		{image: "docker.io/hetznercloud/hcloud-cloud-controller-manager",
			version: func(c config.Config) string { return prefixed(c.HCloudCCMVersion) }},
		{image: "ghcr.io/siderolabs/talos-cloud-controller-manager",
			version: func(c config.Config) string { return talosCCMOfChart[c.TalosCCMVersion] }},
	}
}

// talosCCMOfChart has the program's version by that of its chart (appVersion), which the configuration names.
var talosCCMOfChart = map[string]string{"0.5.4": "v1.12.0"}

// prefixed is a chart's version as the version of its program, which has the same numbers.
func prefixed(version string) string {
	if version == "" {
		return ""
	}
	return "v" + strings.TrimPrefix(version, "v")
}

// reference is the image for a configuration; empty: its version is not known.
func (p upstreamProgram) reference(c config.Config) string {
	version := p.version(c)
	if version == "" {
		return ""
	}
	if p.tag != nil {
		version = p.tag(version)
	}
	return p.image + ":" + version
}

// programsOf are those of a set of another version of a kind.
func programsOf(k Kind) (all []upstreamProgram) {
	for _, p := range inSets() {
		if p.module == k.module {
			all = append(all, p)
		}
	}
	return all
}

// inSets are the programs that a set holds.
func inSets() (all []upstreamProgram) {
	for _, p := range upstreamPrograms() {
		if p.file != "" {
			all = append(all, p)
		}
	}
	return all
}
