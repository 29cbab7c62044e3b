package capi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// HasHCloudServer tells whether the server of an HCloudMachine was made.
func HasHCloudServer(machine unstructured.Unstructured) bool {
	return strings.HasPrefix(Text(&machine, "spec", "providerID"), HCloudProviderPrefix)
}

// HasServer tells whether a server is a machine's: by its ID, or, where CAPH has made a vanished one anew, by the name.
func HasServer(s hetzner.Server, machines []unstructured.Unstructured) bool {
	return slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool {
		return Text(&m, "spec", "providerID") == s.ProviderID() || m.GetName() == s.Name
	})
}

// HCloudProviderPrefix begins the provider ID of a server of the Hetzner Cloud. That of a dedicated server begins
// otherwise.
const HCloudProviderPrefix = "hcloud://"
