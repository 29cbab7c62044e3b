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
	step := newTokenSecretStep(s)
	return flow.Add(g, flow.Task[TokenSecret]{
		Name:     "secret",
		Doc:      "the Hetzner token for Cluster API, in the management cluster",
		Run:      flow.With1(step.run, management),
		Verify:   step.verify,
		Deadline: wait.Overhead,
		Waits:    []flow.Wait{wait.Taken, wait.Namespace},
	})
}

// tokenSecretStep runs and verifies the step secret.
type tokenSecretStep struct {
	cfg   config.Config
	tools platform.Tools
}

func newTokenSecretStep(s *Set) tokenSecretStep {
	return tokenSecretStep{cfg: s.cfg, tools: s.tools}
}

func (t tokenSecretStep) run(ctx context.Context, say flow.Say, m Management) (TokenSecret, error) {
	mgmt, err := connect.Cluster(t.tools, m.Kubeconfig)
	if err != nil {
		return TokenSecret{}, err
	}
	uid, err := apply.Token(ctx, t.cfg, t.tools, say, mgmt)
	return TokenSecret{Namespace: t.cfg.Namespace, Name: config.TokenSecretName, UID: uid}, err
}

// verify compares the token itself, so that a new one reaches the cluster at the next run.
func (t tokenSecretStep) verify(ctx context.Context, was TokenSecret) flow.Verdict {
	return t.verifyIn(ctx, platform.ManagementKubeconfig, was)
}

func (t tokenSecretStep) verifyIn(ctx context.Context, kubeconfig string, was TokenSecret) flow.Verdict {
	c, err := connect.Cluster(t.tools, kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	return verifyToken(ctx, t.tools, c, was, map[string]string{config.TokenSecretKey: t.tools.Token.Reveal()})
}

// OwnTokenSecret adds the step token to a graph: a cluster that manages itself has today's Hetzner token, for CAPH and
// for the cloud controller manager. The step secret lies before the pivot.
func (s *Set) OwnTokenSecret(g *flow.Graph) *flow.Step[TokenSecret] {
	step := newTokenSecretStep(s)
	return flow.Add(g, flow.Task[TokenSecret]{
		Name: "token",
		Doc:  "a cluster that manages itself has today's Hetzner token",
		Run: flow.Do(func(ctx context.Context, say flow.Say) (TokenSecret, error) {
			return step.run(ctx, say, Management{Kubeconfig: platform.Kubeconfig})
		}),
		Verify: func(ctx context.Context, was TokenSecret) flow.Verdict {
			return step.verifyIn(ctx, platform.Kubeconfig, was)
		},
		Deadline: wait.Overhead,
		Waits:    []flow.Wait{wait.Taken, wait.Namespace},
	})
}

// verifyToken is verifySecret of a Secret with the Hetzner token.
func verifyToken(ctx context.Context, tools platform.Tools, c *kube.Cluster, was TokenSecret,
	want map[string]string) flow.Verdict {
	v := verifySecret(ctx, c, was, want)
	if v.Answer() != flow.AnswerGone {
		return v
	}
	return flow.Gone("%s; %s writes the token of this command, before another one is revoked", v.Reason(),
		tools.Command("bootstrap"))
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
