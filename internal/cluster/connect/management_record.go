package connect

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// WrongManagementError says that what answers, or is configured, is not the management cluster that the state folder
// recorded.
type WrongManagementError struct{ text string }

// Error implements error.
func (e *WrongManagementError) Error() string { return e.text }

// RecordManagement records the management cluster before it is created or adopted, then without a UID, and once more
// when its API answers. What the provider itself has recorded of it stays.
func RecordManagement(tools platform.Tools, m ownership.Management) error {
	return ownership.Update(tools.Files, func(r *ownership.Record) {
		if was := r.Management; was != nil && was.Provider == m.Provider && was.Name == m.Name {
			m.Engine, m.Adopted = was.Engine, was.Adopted
		}
		r.Management = &m
	})
}

// ForgetManagement removes the management cluster, which is deleted, from the record.
func ForgetManagement(tools platform.Tools) error {
	return ownership.Update(tools.Files, func(r *ownership.Record) { r.Management = nil })
}

// recorded is the recorded management cluster; nil where none is.
func recorded(tools platform.Tools) (*ownership.Management, error) {
	r, err := ownership.Read(tools.Files)
	if err != nil || r == nil {
		return nil, err
	}
	return r.Management, nil
}

// checkManagementUID refuses a cluster that answers in the place of the recorded management cluster.
func checkManagementUID(tools platform.Tools, uid string) error {
	m, err := recorded(tools)
	if err != nil || m == nil || m.UID == "" || m.UID == uid {
		return err
	}
	return &WrongManagementError{fmt.Sprintf("the cluster that %s opens (namespace kube-system has UID %s) is not the "+
		"management cluster %s that this state folder recorded (UID %s): put the kubeconfig of %s there, or remove the "+
		"file where %s finds that cluster by its name",
		tools.Files.Path(platform.ManagementKubeconfig), uid, m.Name, m.UID, m.Name, tools.Management.Name())}
}

// CheckManagementProvider refuses to ask another provider than the recorded one whether the management cluster exists:
// it would say no of a cluster that it does not know.
func CheckManagementProvider(tools platform.Tools) error {
	m, err := recorded(tools)
	if err != nil || m == nil || m.Provider == tools.Management.Name() {
		return err
	}
	hint := "leave MANAGEMENT_KUBECONFIG unset, as when the cluster was created"
	switch m.Provider {
	case "kubeconfig":
		hint = "set MANAGEMENT_KUBECONFIG to its kubeconfig, as when the cluster was created, or MANAGEMENT=existing in a Pod of " +
			"it"
	case config.ManagementLocal, config.ManagementKind:
		hint = "set MANAGEMENT=" + m.Provider + " and leave MANAGEMENT_KUBECONFIG unset, as when the cluster was created"
	}
	return &WrongManagementError{fmt.Sprintf("management cluster %s does not answer, and its provider is %s, not %s, "+
		"which is configured now: %s",
		m.Name, m.Provider, tools.Management.Name(), hint)}
}

// ManagementCreator is a ManagementProvider that may find a cluster which another state folder or a person created.
type ManagementCreator interface {
	// Created reports whether this state folder created the cluster, or there is none.
	Created(ctx context.Context, name string) (bool, error)
}

// ManagementGiven reports whether the management cluster is not this state folder's to delete: the operator named it,
// or its provider has found it there.
func ManagementGiven(ctx context.Context, cfg config.Config, tools platform.Tools) (bool, error) {
	c, is := tools.Management.(ManagementCreator)
	if !is {
		return tools.ManagementGiven(), nil
	}
	created, err := c.Created(ctx, cfg.ManagementName())
	return !created, err
}

// UsesManagement reports whether the state folder recorded a cluster, by its UID, as the management cluster that it
// works with.
func UsesManagement(tools platform.Tools, uid string) (bool, error) {
	m, err := recorded(tools)
	return m != nil && m.UID != "" && m.UID == uid, err
}

// CheckClusterAbsent returns nil where a management cluster does not have the Cluster object any more. While it has,
// its CAPH can create servers.
func CheckClusterAbsent(ctx context.Context, cfg config.Config, manager *kube.Cluster) error {
	o, err := FindCluster(ctx, cfg, manager)
	if err != nil {
		return fmt.Errorf("find out whether management cluster %s still holds cluster %s: %w", cfg.ManagementName(),
			cfg.ClusterName, err)
	}
	if o == nil {
		return nil
	}
	return fmt.Errorf("nothing of cluster %s is left at Hetzner, but management cluster %s still holds its Cluster "+
		"object, and CAPH would create the servers again: make its controllers work (kubectl get pods -A) and run destroy "+
		"again, so that they delete it", cfg.ClusterName, cfg.ManagementName())
}
