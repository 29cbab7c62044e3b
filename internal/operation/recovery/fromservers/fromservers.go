// Package fromservers makes a backup of a cluster whose Cluster API objects are lost. Its servers' machine
// configurations have its authorities and keys; its nodes, etcd and Hetzner tell the rest.
package fromservers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
)

// Collector makes the Cluster API objects of a cluster from its servers.
type Collector struct {
	Cfg   config.Config
	Tools platform.Tools
	// Note gets what the objects do not have, or have other than the configuration.
	Note func(format string, args ...any)
}

// Read reads everything that a backup holds but the snapshot of etcd. It changes nothing. version is that of the
// command.
func (c Collector) Read(ctx context.Context, say flow.Say, version string) (*backup.CollectorSource, error) {
	tools := c.Tools.WithDefaults()
	workload, err := open(tools, platform.Kubeconfig, connect.Cluster)
	if err != nil {
		return nil, err
	}
	if err := refuseManaged(ctx, c.Cfg, tools, workload); err != nil {
		return nil, err
	}
	say("asking Hetzner, the nodes and the servers' Talos for what cluster %s is", c.Cfg.ClusterName)
	s, err := look(ctx, c.Cfg, tools, workload)
	if err != nil {
		return nil, err
	}
	cfg, err := s.configuration(c.Cfg, note(c.Note))
	if err != nil {
		return nil, err
	}
	made, err := s.objects(cfg, note(c.Note))
	if err != nil {
		return nil, fmt.Errorf("make the Cluster API objects of cluster %s: %w", cfg.ClusterName, err)
	}
	if made.SelfManaged, err = hadProviders(ctx, workload); err != nil {
		return nil, err
	}
	return backup.NewCollector(cfg, tools).ReadMade(ctx, say, version, workload, made)
}

// open opens what a file of the state folder leads to.
func open[T any](tools platform.Tools, file string, with func(platform.Tools, string) (T, error)) (T, error) {
	found, err := with(tools, file)
	if errors.Is(err, fs.ErrNotExist) {
		return found, usage.Errorf("there is no %s: put that of the cluster there. Both the kubeconfig and the "+
			"talosconfig of an administrator are needed", tools.Files.Path(file))
	}
	return found, err
}

// refuseManaged refuses a cluster whose Cluster object exists: a backup of what is there is a better one.
func refuseManaged(ctx context.Context, cfg config.Config, tools platform.Tools, workload *kube.Cluster) error {
	management, err := recovery.Management(ctx, cfg, tools)
	if err != nil {
		return err
	}
	for name, c := range map[string]*kube.Cluster{"cluster " + cfg.ClusterName + " itself": workload,
		"management cluster " + cfg.ManagementName(): management} {
		if c == nil {
			continue
		}
		object, err := connect.FindCluster(ctx, cfg, c)
		switch {
		case err != nil:
			return fmt.Errorf("find out whether %s holds the Cluster object: %w", name, err)
		case object != nil:
			return usage.Errorf("%s holds %s: its objects are not lost, leave --from-servers away", name,
				kube.Describe(object))
		}
	}
	return nil
}

// hadProviders tells whether the providers of Cluster API run in the cluster: it managed itself.
func hadProviders(ctx context.Context, workload *kube.Cluster) (bool, error) {
	all := &appsv1.DeploymentList{}
	if err := workload.List(ctx, all,
		client.MatchingLabels{capi.ProviderLabel: capi.ControlPlaneProviderName}); err != nil {
		return false, fmt.Errorf("look for the providers of Cluster API in the cluster: %w", err)
	}
	return len(all.Items) > 0, nil
}
