package steps

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Access is what opens the cluster that manages itself, as it is today: the steps that made it first lie before the
// pivot and are not looked at any more, but certificates end, and servers come and go.
type Access struct {
	Endpoint    string      `json:"endpoint"`   // host:port of the Kubernetes API
	Kubeconfig  string      `json:"kubeconfig"` // file in the state folder
	Talosconfig Talosconfig `json:"talosconfig"`
	Nodes       []Node      `json:"nodes"`
	// Values are those that the cluster had, of the variables of the manifests.
	Values map[string]string `json:"values,omitempty"`
}

// refreshAccess asks the cluster itself.
func (b *bootstrapper) refreshAccess(ctx context.Context, say flow.Say) (Access, error) {
	self, err := b.connect(kubeconfigFile)
	if err != nil {
		return Access{}, err
	}
	live, err := get(ctx, self, hetznerClusterKind, b.cfg.ClusterName)
	if err != nil {
		return Access{}, err
	}
	ip := text(live, "spec", "controlPlaneEndpoint", "host")
	if err := b.checkEndpoint(ctx, ip); err != nil {
		return Access{}, err // a kubeconfig that somebody pointed at a server is worth more than the cluster's own
	}
	config, err := b.waitSecret(ctx, say, self, b.cfg.ClusterName+"-kubeconfig", "value")
	if err != nil {
		return Access{}, err
	}
	if err := b.tools.Files.Write(kubeconfigFile, config); err != nil {
		return Access{}, err
	}
	port := strconv.FormatInt(number(live, "spec", "controlPlaneEndpoint", "port"), 10)
	out := Access{Endpoint: net.JoinHostPort(ip, port), Kubeconfig: kubeconfigFile}
	c := Cluster{Name: b.cfg.ClusterName, ControlPlane: b.cfg.ControlPlaneName(), LoadBalancerIP: ip}
	if out.Talosconfig, err = b.writeTalosconfig(ctx, say, self, c); err != nil {
		return Access{}, err
	}
	r, err := b.readRoll(ctx, self, self)
	if err != nil {
		return Access{}, err
	}
	out.Nodes = r.output().Nodes
	soon, cancel := context.WithTimeout(ctx, comparedWithin)
	defer cancel()
	if o, err := b.observeCluster(soon, self); err == nil { // they only tell a later run what was changed since
		out.Values = o.values
	}
	return out, nil
}

func (b *bootstrapper) accessStands(ctx context.Context, was Access) flow.Verdict {
	self, err := b.connect(kubeconfigFile)
	if err != nil {
		return flow.Unknown(err)
	}
	host, _, err := net.SplitHostPort(was.Endpoint)
	if err != nil {
		return flow.Unknown(err)
	}
	if v := b.endpointStands(ctx, host); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := b.kubeconfigHolds(ctx, self); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := b.talosconfigHolds(ctx, self, was.Talosconfig); v.Answer() != flow.AnswerHolds {
		return v
	}
	r, err := b.readRoll(ctx, self, self)
	if err != nil {
		return flow.Unknown(err)
	}
	if !slices.Equal(r.output().Nodes, was.Nodes) {
		return flow.Gone("the nodes are others than the recorded")
	}
	return flow.Holds()
}

// pivotStands asks only whether the cluster still is its own manager. Whether it is paused for maintenance, or has more
// servers than it had, is not the pivot's business any more.
func (b *bootstrapper) pivotStands(ctx context.Context, was Pivot) flow.Verdict {
	self, err := b.connect(kubeconfigFile)
	if err != nil {
		return flow.Unknown(err)
	}
	is, err := get(ctx, self, clusterKind, b.cfg.ClusterName)
	switch {
	case kube.Absent(err):
		return flow.Gone("cluster %s does not hold its Cluster object any more", b.cfg.ClusterName)
	case err != nil:
		return flow.Unknown(fmt.Errorf("ask cluster %s: %w", b.cfg.ClusterName, b.silent(ctx, self, err)))
	case string(is.GetUID()) != was.Cluster && is.GetAnnotations()[readoptedAnnotation] == "": // else a readoption has put it back
		return flow.Gone("the Cluster object is another one than the recorded")
	}
	return flow.Holds()
}
