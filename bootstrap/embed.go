// Package bootstrap holds what is in a new cluster before anything else: the schematic of the servers' image, the Helm
// charts and their values, as people edit them.
package bootstrap

import "embed"

// Schematic is the file that says what the servers' Talos has beside Talos itself.
const Schematic = "schematic.yaml"

// Addons is the folder of the values files of add-ons, below this one.
const Addons = "addons"

// Schematics is the folder of the operator's schematics for worker pools, below this one. There is none inside the
// command.
const Schematics = "schematics"

// Files holds the YAML files of this folder and of the folder Addons.
//
//go:embed *.yaml addons/*.yaml
var Files embed.FS

// Chart says what is installed, and where it comes from unless configured otherwise. Versions are configuration.
type Chart struct {
	Name       string // of the chart, in its repository
	Repository string // https:// for a classic repository, oci:// for the folder in a registry
	Release    string // name of the Helm release
	Namespace  string // where it is installed
	Values     string // file of this folder
	Program    string // what its step, and its log in the target logs, are called
}

// Cilium is the network: CNI, kube-proxy's replacement and Hubble.
func Cilium() Chart {
	return Chart{Name: "cilium", Repository: "https://helm.cilium.io", Release: "cilium", Namespace: "kube-system",
		Values: "cilium-values.yaml", Program: "cilium"}
}

// HCloudCCM is Hetzner's cloud controller manager: provider IDs, addresses and zones of Nodes, Services' load
// balancers.
func HCloudCCM() Chart {
	return Chart{Name: "hcloud-cloud-controller-manager", Repository: "https://charts.hetzner.cloud",
		Release: "hcloud-cloud-controller-manager", Namespace: "kube-system", Values: "hcloud-ccm-values.yaml",
		Program: "hcloud-ccm"}
}

// TalosCCM is Talos's cloud controller manager: it approves the kubelets' serving certificates, nothing else.
func TalosCCM() Chart {
	return Chart{Name: "talos-cloud-controller-manager", Repository: "oci://ghcr.io/siderolabs/charts",
		Release: "talos-cloud-controller-manager", Namespace: "kube-system", Values: "talos-ccm-values.yaml",
		Program: "talos-ccm"}
}
