package steps

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Kubeconfig is the file that opens the workload cluster.
type Kubeconfig struct {
	File string `json:"file"` // in the state folder
	// Cluster is the UID of the Cluster object: the kubeconfig of a cluster that was created again is another one.
	Cluster string `json:"cluster"`
}

// Kubeconfig adds the step kubeconfig to a graph: the state folder has the cluster's kubeconfig.
func (s *Set) Kubeconfig(g *flow.Graph, management *flow.Step[Management],
	cluster *flow.Step[Cluster]) *flow.Step[Kubeconfig] {
	return flow.Add(g, flow.Task[Kubeconfig]{
		Name:     "kubeconfig",
		Doc:      "the cluster's kubeconfig, as a file",
		Run:      flow.With2(s.runKubeconfig, management, cluster),
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyKubeconfig),
		Deadline: s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg)},
	})
}

// runKubeconfig copies the kubeconfig that the control plane provider keeps, as soon as there is one.
func (s *Set) runKubeconfig(ctx context.Context, say flow.Say, m Management, c Cluster) (Kubeconfig, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return Kubeconfig{}, err
	}
	config, err := s.waitSecret(ctx, say, mgmt, c.Name+"-kubeconfig", "value")
	if err != nil {
		return Kubeconfig{}, err
	}
	o := connect.Offered{Data: config, Source: kubeconfigSource(s.cfg), Endpoints: []string{c.Endpoint},
		ByManagement: true}
	if err := connect.Replace(ctx, s.tools, say, o); err != nil {
		return Kubeconfig{}, err
	}
	return Kubeconfig{File: platform.Kubeconfig, Cluster: c.UID}, nil
}

// kubeconfigSource names where the control plane provider keeps the kubeconfig.
func kubeconfigSource(cfg config.Config) string {
	return "Secret " + cfg.Namespace + "/" + cfg.ClusterName + "-kubeconfig"
}

// waitSecret waits until one of the cluster's Secrets has a key.
func (s *Set) waitSecret(ctx context.Context, say flow.Say, mgmt *kube.Cluster, name, key string) (value []byte,
	err error) {
	selected := []kube.Selection{{List: &corev1.SecretList{}, Options: []client.ListOption{
		client.InNamespace(s.cfg.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)},
	}}}
	w := wait.Wait{What: "Secret " + name, Within: s.cfg.ControlPlaneTimeout.D(),
		Explain: s.observer.Progress(mgmt, situation.WatchedOf(s.cfg))}
	err = untilIn(ctx, say, w, mgmt, selected, func(ctx context.Context) (string, error) {
		value, err = connect.SecretValue(ctx, mgmt, s.cfg.Namespace, name, key)
		if kube.Absent(err) {
			return "it does not exist yet", nil
		}
		return "", err
	})
	return value, err
}

// verifyKubeconfig compares the file with the Secret: the provider makes a new certificate before the old one ends.
func (s *Set) verifyKubeconfig(ctx context.Context, mgmt *kube.Cluster, _ Kubeconfig) flow.Verdict {
	return s.kubeconfigHolds(ctx, mgmt)
}

func (s *Set) kubeconfigHolds(ctx context.Context, mgmt *kube.Cluster) flow.Verdict {
	file, err := s.tools.Files.Read(platform.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return flow.Gone("the file %s is not in the state folder", platform.Kubeconfig)
	}
	if err != nil {
		return flow.Unknown(err)
	}
	live, err := connect.WorkloadKubeconfig(ctx, mgmt, s.cfg.Namespace, s.cfg.ClusterName)
	if err != nil {
		return kube.Verdict(err)
	}
	if !bytes.Equal(file, live) {
		return flow.Gone("there is a newer kubeconfig")
	}
	return flow.Holds()
}
