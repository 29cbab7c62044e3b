package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// ManagementSpec is what the management cluster is made from.
func ManagementSpec(cfg config.Config, tools platform.Tools) map[string]string {
	return map[string]string{"provider": tools.Management.Name(), "name": cfg.ManagementName()}
}

// EnsureManagement asks its provider for the management cluster, whatever servers there are.
func EnsureManagement(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (ownership.Management,
	error) {
	p, name := tools.Management, cfg.ManagementName()
	if err := RecordManagement(tools, ownership.Management{Provider: p.Name(), Name: name}); err != nil {
		return ownership.Management{}, err
	}
	data, err := p.Ensure(ctx, name, say)
	if err != nil {
		return ownership.Management{}, fmt.Errorf("management cluster %s (%s): %w", name, p.Name(), err)
	}
	if err := tools.Files.Write(platform.ManagementKubeconfig, data); err != nil {
		return ownership.Management{}, err
	}
	cluster, err := Management(tools, data)
	if err != nil {
		return ownership.Management{}, fmt.Errorf("management cluster %s (%s): %w", name, p.Name(), err)
	}
	m := ownership.Management{Provider: p.Name(), Name: name}
	err = wait.Wait{What: "the API of management cluster " + name, Within: wait.ManagementReady}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			if err := cluster.Ready(ctx); err != nil {
				return "", err
			}
			m.UID, err = cluster.UID(ctx)
			return "", err
		})
	if err != nil {
		return ownership.Management{}, err
	}
	return m, RecordManagement(tools, m)
}

// VerifyManagement distinguishes a cluster that is gone from one that is silent: it may have the only record of which
// servers belong to whom, so only its provider's answer, or another cluster in its place, counts as gone.
func VerifyManagement(ctx context.Context, tools platform.Tools, m ownership.Management) flow.Verdict {
	uid, err := managementUID(ctx, tools)
	switch {
	case err == nil && uid == m.UID:
		return flow.Holds()
	case err == nil:
		return flow.Gone("another cluster answers in the place of management cluster %s", m.Name)
	}
	exists, existsErr := tools.Management.Exists(ctx, m.Name)
	switch {
	case existsErr != nil:
		return flow.Unknown(fmt.Errorf("management cluster %s does not answer (%w) and %s cannot tell whether it exists: %w",
			m.Name, err, m.Provider, existsErr))
	case !exists:
		return flow.Gone("%s has no management cluster %s any more", m.Provider, m.Name)
	case kubeconfig.Refused(err):
		return flow.Gone("the kubeconfig of management cluster %s is fetched anew: %v", m.Name, err)
	case errors.Is(err, fs.ErrNotExist):
		return flow.Gone("the kubeconfig of management cluster %s is not in the state folder", m.Name)
	}
	return flow.Unknown(fmt.Errorf("management cluster %s exists but does not answer: %w: start it again; delete it "+
		"only if you know that it manages nothing", m.Name, err))
}

// managementUID is the UID of the cluster that the kubeconfig of the management cluster opens.
func managementUID(ctx context.Context, tools platform.Tools) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	cluster, err := Cluster(tools, platform.ManagementKubeconfig)
	if err != nil {
		return "", err
	}
	return cluster.UID(ctx)
}
