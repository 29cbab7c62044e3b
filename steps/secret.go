package steps

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// TokenSecret identifies the Secret with the Hetzner token. It does not contain the token itself.
type TokenSecret struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// TokenSecret adds the step secret to a graph: the management cluster has the Hetzner token.
func (s *Set) TokenSecret(g *flow.Graph, management *flow.Step[Management]) *flow.Step[TokenSecret] {
	return flow.Add(g, flow.Task[TokenSecret]{
		Name:     "secret",
		Doc:      "the Hetzner token for Cluster API, in the management cluster",
		Run:      flow.With1(s.runTokenSecret, management),
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyTokenSecret),
		Deadline: wait.Overhead,
		Waits:    []flow.Wait{wait.Taken, wait.Namespace},
	})
}

func (s *Set) runTokenSecret(ctx context.Context, say flow.Say, m Management) (TokenSecret, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return TokenSecret{}, err
	}
	return s.writeTokenSecret(ctx, say, mgmt)
}

func (s *Set) writeTokenSecret(ctx context.Context, say flow.Say, in *kube.Cluster) (TokenSecret, error) {
	uid, err := apply.Token(ctx, s.cfg, s.tools, say, in)
	return TokenSecret{Namespace: s.cfg.Namespace, Name: config.TokenSecretName, UID: uid}, err
}

// verifyTokenSecret compares the token itself, so that a new one reaches the cluster at the next run.
func (s *Set) verifyTokenSecret(ctx context.Context, in *kube.Cluster, was TokenSecret) flow.Verdict {
	return s.verifyToken(ctx, in, was, map[string]string{config.TokenSecretKey: s.tools.Token.Reveal()})
}

// OwnTokenSecret adds the step token to a graph: a cluster that manages itself has today's Hetzner token, for CAPH and
// for the cloud controller manager. The step secret lies before the pivot.
func (s *Set) OwnTokenSecret(g *flow.Graph) *flow.Step[TokenSecret] {
	return flow.Add(g, flow.Task[TokenSecret]{
		Name:     "token",
		Doc:      "a cluster that manages itself has today's Hetzner token",
		Run:      doIn(s, s.writeTokenSecret),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyTokenSecret),
		Deadline: wait.Overhead,
		Waits:    []flow.Wait{wait.Taken, wait.Namespace},
	})
}

// verifyToken is verifySecret of a Secret with the Hetzner token.
func (s *Set) verifyToken(ctx context.Context, c *kube.Cluster, was TokenSecret, want map[string]string) flow.Verdict {
	v := verifySecret(ctx, c, was, want)
	if v.Answer() != flow.AnswerGone {
		return v
	}
	return flow.Gone("%s; %s writes the token of this command, before another one is revoked", v.Reason(),
		s.tools.Command("bootstrap"))
}

// verifySecret compares a Secret with what it was made of. No value is ever part of the answer.
func verifySecret(ctx context.Context, c *kube.Cluster, was TokenSecret, want map[string]string) flow.Verdict {
	is := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: was.Namespace, Name: was.Name}, is); err != nil {
		return kube.Verdict(fmt.Errorf("get Secret %s/%s: %w", was.Namespace, was.Name, err))
	}
	if string(is.UID) != was.UID {
		return flow.Gone("Secret %s/%s is another one than the recorded", was.Namespace, was.Name)
	}
	for key, value := range want {
		if string(is.Data[key]) != value {
			return flow.Gone("Secret %s/%s holds another value of %s than today's", was.Namespace, was.Name, key)
		}
	}
	return flow.Holds()
}
