package lab

import "github.com/slipway-k8s/slipway/config"

// Kind is what a lab can have several versions of: a set of programs for each.
type Kind struct {
	Name     string   // for people
	module   string   // Go module of the programs
	packages []string // of the programs
	folder   string   // in the lab's source, holds a module for each further version; in a lab's folder, lists versions
	variable string   // that configures the version
	flag     string   // of the daemon
	route    string   // of the daemon's control API
	runners  string   // who runs the programs, in messages

	configured func(config.Config) string
	with       func(*config.Config, string) // another version configured
	in         func(Info) []ProgramSet
}

// Kubernetes are the programs of control planes.
func Kubernetes() Kind {
	return Kind{Name: "Kubernetes", module: kubernetesPath, packages: []string{kubernetesPath + "/cmd/kube-apiserver",
		kubernetesPath + "/cmd/kube-controller-manager", kubernetesPath + "/cmd/kube-scheduler"},
		folder: "kubernetes", variable: "KUBERNETES_VERSION", flag: "--kubernetes", route: "/v1/kubernetes",
		runners:    "servers of Kubernetes",
		configured: func(c config.Config) string { return c.KubernetesVersion },
		with:       func(c *config.Config, version string) { c.KubernetesVersion = version },
		in:         func(i Info) []ProgramSet { return i.KubernetesSets }}
}

// Core is the manager of Cluster API's core.
func Core() Kind {
	return Kind{Name: "Cluster API", module: corePath, packages: []string{corePath},
		folder: "clusterapi", variable: "CAPI_VERSION", flag: "--core", route: "/v1/core",
		runners:    "Pods of Cluster API",
		configured: func(c config.Config) string { return c.CAPIVersion },
		with:       func(c *config.Config, version string) { c.CAPIVersion = version },
		in:         func(i Info) []ProgramSet { return i.CoreSets }}
}

func kinds() []Kind { return []Kind{Kubernetes(), Core()} }

// commonTools are the packages of the programs of which a lab has one version.
func commonTools() []string {
	return []string{"go.etcd.io/etcd/server/v3", "github.com/siderolabs/cluster-api-bootstrap-provider-talos",
		"github.com/siderolabs/cluster-api-control-plane-provider-talos"}
}

// corePath is the Go module of Cluster API's core.
const corePath = "sigs.k8s.io/cluster-api"
