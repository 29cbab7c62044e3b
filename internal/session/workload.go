package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// OpenWorkload opens the cluster of the state folder to read from it, or the one in whose Pod the process runs. No
// files are written, and no lab is started.
func OpenWorkload(ctx context.Context, c *Caller, q Request, pod bool) (*kube.Cluster, error) {
	SilenceLibraries()
	if pod {
		kubeconfig, err := kube.PodKubeconfig(c.Environment)
		if err != nil {
			return nil, &usage.Error{Err: fmt.Errorf("--in-cluster: %w", err)}
		}
		return kube.ConnectTrusted(kubeconfig)
	}
	k, err := Load(c, q)
	if err != nil {
		return nil, err
	}
	state, err := k.StateWithCluster(ctx)
	if err != nil {
		return nil, err
	}
	_, cluster, err := k.InspectWorkload(ctx, state)
	return cluster, err
}

// StateWithCluster is State, and refuses a state folder that has no cluster.
func (k Cluster) StateWithCluster(ctx context.Context) (statedir.Dir, error) {
	state, err := k.State(ctx)
	if err != nil {
		return state, err
	}
	if _, err := state.Files().Read(platform.Kubeconfig); errors.Is(err, os.ErrNotExist) {
		return state, usage.Errorf("there is no %s of a cluster in %s: name the cluster (CLUSTER_NAME=…) or its state "+
			"folder (--state-dir)", platform.Kubeconfig, state)
	} else if err != nil {
		return state, fmt.Errorf("read the kubeconfig of cluster %s: %w", k.Cfg.ClusterName, err)
	}
	return state, nil
}

// InspectWorkload opens the cluster of the state folder to read from it, and asks nothing of Hetzner. The configuration
// is that of the lab where the cluster is in one.
func (k Cluster) InspectWorkload(ctx context.Context, state statedir.Dir) (l Inspection, cluster *kube.Cluster,
	err error) {
	SilenceLibraries()
	environment, err := state.Environment()
	if err != nil {
		return l, nil, err
	}
	if k.Lab || environment == statedir.EnvironmentLab {
		if l, err = k.Inspect(ctx, state); err == nil && l.Offline != "" {
			err = errors.New(l.Offline)
		}
		if err != nil {
			return l, nil, err
		}
	} else {
		l = Inspection{Cluster: k, Folder: state, Tools: k.CommonTools(state, io.Discard)}
	}
	cluster, err = connect.Cluster(l.Tools.WithDefaults(), platform.Kubeconfig)
	return l, cluster, err
}

// ChangeWorkload opens a session for what changes the cluster of the state folder and asks nothing of Hetzner, with the
// journal locked.
func (k Cluster) ChangeWorkload(ctx context.Context, displays func() []Display,
	do func(context.Context, *Session, *kube.Cluster) error) error {
	if _, err := k.StateWithCluster(ctx); err != nil {
		return err
	}
	if err := k.CheckEnvironment(ctx); err != nil {
		return err
	}
	var access Access
	if k.Lab {
		var err error
		if access, err = k.ReadAccess(ctx); err != nil {
			return err
		}
	}
	return k.do(ctx, access, displays(), func(ctx context.Context, s *Session) error {
		return s.Locked(ctx, func(ctx context.Context) error {
			if s.Lab {
				if err := s.Connect(ctx); err != nil {
					return err
				}
			} else if s.Caller.Equip != nil {
				s.Caller.Equip(&s.Tools)
			}
			cluster, err := connect.Cluster(s.Tools.WithDefaults(), platform.Kubeconfig)
			if err != nil {
				return err
			}
			return do(ctx, s, cluster)
		})
	})
}
