package local

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/management"
)

// lookTime bounds the time to read the objects of the clusters that are managed, a start of the management cluster that
// is under way included.
const lookTime = 30 * time.Second

// clusterAPIGroup is the API group of Clusters and Machines.
const clusterAPIGroup = "cluster.x-k8s.io"

// hostsOf are the addresses of the clusters whose objects the management clusters have: their control plane endpoints,
// and the addresses of their servers.
func hostsOf(ctx context.Context, clusters *management.Clusters) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	hosts := map[string]bool{}
	for _, c := range clusters.List() {
		m, err := clusters.Get(ctx, c.Name())
		if err != nil {
			return nil, err
		}
		if err := addHosts(ctx, m.Admin(), hosts); err != nil {
			return nil, fmt.Errorf("read which servers the clusters of management cluster %s have: %w", m.Name(), err)
		}
	}
	return hosts, nil
}

func addHosts(ctx context.Context, access *rest.Config, hosts map[string]bool) error {
	finder, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return err
	}
	groups, err := finder.ServerGroups()
	if err != nil {
		return err
	}
	for _, group := range groups.Groups {
		if group.Name != clusterAPIGroup {
			continue
		}
		version := schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version}
		for resource, of := range map[string]func(unstructured.Unstructured) []string{
			"clusters": endpointOf, "machines": addressesOf,
		} {
			list, err := client.Resource(version.WithResource(resource)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s: %w", resource, err)
			}
			for _, object := range list.Items {
				for _, host := range of(object) {
					hosts[plainHost(host)] = true
				}
			}
		}
	}
	return nil
}

// endpointOf is the host of a Cluster's control plane endpoint.
func endpointOf(cluster unstructured.Unstructured) []string {
	host, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneEndpoint", "host")
	if host == "" {
		return nil
	}
	return []string{host}
}

// addressesOf are the IP addresses of a Machine's server.
func addressesOf(machine unstructured.Unstructured) (addresses []string) {
	list, _, _ := unstructured.NestedSlice(machine.Object, "status", "addresses")
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		address, _ := fields["address"].(string)
		if _, err := netip.ParseAddr(address); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// plainHost is an IP address in its usual form, or a name as it is.
func plainHost(host string) string {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return host
}

// permit refuses a target that is neither the Hetzner API nor an API of a cluster that is managed.
func (p *proxy) permit(ctx context.Context, target string) error {
	if err := allowed(target); err != nil || target == hetznerAPI {
		return err
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	hosts, err := p.hosts(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", target, err)
	}
	if !hosts[plainHost(host)] {
		return fmt.Errorf("connect to %s: %s is no control plane endpoint and no server of a cluster that this management "+
			"cluster has (Cluster, spec.controlPlaneEndpoint; Machine, status.addresses), whose ports %s and %s alone are "+
			"reached besides %s: port %s of it is refused", target, host, kubernetesPort, talosPort, hetznerAPI, port)
	}
	return nil
}
