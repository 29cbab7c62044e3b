package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/gitea"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// GiteaToken identifies the Secret with the token of Gitea. It does not contain the token itself.
type GiteaToken struct {
	Secret      TokenSecret `json:"secret"`
	URL         string      `json:"url"`
	Fingerprint string      `json:"fingerprint"` // of the token: half of its SHA-256
}

// Keys of the Secret with the token.
const (
	giteaTokenKey = "token"
	giteaURLKey   = "url"
)

// GiteaToken adds the step gitea-token to a graph: the Secret with Gitea's token exists.
func (s *Set) GiteaToken(g *flow.Graph, installed *flow.Step[Addon]) *flow.Step[GiteaToken] {
	return flow.Add(g, flow.Task[GiteaToken]{
		Name:     "gitea-token",
		Doc:      "a Secret in the cluster has Gitea's address and a token of it",
		Run:      doIn(s, s.runGiteaToken),
		After:    flow.Of(installed),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyGiteaToken),
		Deadline: s.cfg.GiteaTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{giteaAPI(s.cfg)},
	})
}

func (s *Set) runGiteaToken(ctx context.Context, say flow.Say, workload *kube.Cluster) (GiteaToken, error) {
	store := &giteaSecret{workload: workload, url: s.cfg.GiteaURL()}
	// No name of a cluster has a dot: none of the prefixes begins with another cluster's.
	want := gitea.Wanted{Prefix: "slipway." + s.cfg.ClusterName + ".", Scopes: s.cfg.GiteaScopes()}
	say("ensuring Secret %s/%s with a token for %v", config.GiteaNamespace, config.GiteaTokenSecret, want.Scopes)
	var token string
	err := s.askGitea(ctx, say, workload, func(ctx context.Context, c *gitea.Client) (err error) {
		if token, err = gitea.Ensure(ctx, c, store, want); err == nil {
			s.remarkGiteaToken(ctx, say, c, token)
		}
		return err
	})
	if err != nil {
		return GiteaToken{}, err
	}
	return GiteaToken{Secret: TokenSecret{Namespace: config.GiteaNamespace, Name: config.GiteaTokenSecret,
		UID: string(store.uid)}, URL: store.url, Fingerprint: fingerprint(token)}, nil
}

// remarkGiteaToken says where a token that was kept is of no use. It stays all the same: it may be the operator's.
func (s *Set) remarkGiteaToken(ctx context.Context, say flow.Say, c *gitea.Client, token string) {
	if known, err := c.Knows(ctx, token); err == nil && !known {
		say("note: Gitea does not know the token in Secret %[1]s/%[2]s, which stays: to have a new one, kubectl delete "+
			"secret --namespace %[1]s %[2]s, and run %[3]s", config.GiteaNamespace, config.GiteaTokenSecret,
			s.tools.Command("gitea-token"))
	}
}

// fingerprint tells tokens apart and tells nothing of them.
func fingerprint(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:len(sum)/2])
}

// verifyGiteaToken asks whether the Secret has the token that it had. That Gitea is not asked leaves this to who uses
// the token.
func (s *Set) verifyGiteaToken(ctx context.Context, workload *kube.Cluster, was GiteaToken) flow.Verdict {
	store := &giteaSecret{workload: workload}
	token, err := store.Token(ctx)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case token == "":
		return flow.Gone("Secret %s/%s has no token", was.Secret.Namespace, was.Secret.Name)
	case string(store.uid) != was.Secret.UID || fingerprint(token) != was.Fingerprint:
		return flow.Gone("Secret %s/%s has another token than the recorded", was.Secret.Namespace, was.Secret.Name)
	}
	return flow.Holds()
}

// giteaSecret is the Secret with the token. It has no owner: it stays when the release is removed.
type giteaSecret struct {
	workload *kube.Cluster
	url      string
	uid      types.UID // of the Secret as it was read or written last
}

func (s *giteaSecret) read(ctx context.Context) (*corev1.Secret, error) {
	is := &corev1.Secret{}
	err := s.workload.Get(ctx, client.ObjectKey{Namespace: config.GiteaNamespace, Name: config.GiteaTokenSecret}, is)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s/%s: %w", config.GiteaNamespace, config.GiteaTokenSecret, err)
	}
	s.uid = is.UID
	return is, nil
}

// Token implements gitea.Store.
func (s *giteaSecret) Token(ctx context.Context) (string, error) {
	is, err := s.read(ctx)
	if is == nil {
		return "", err
	}
	return string(is.Data[giteaTokenKey]), err
}

// Keep implements gitea.Store. A Secret without a token, which others may have made, keeps what else it has. The API
// server refuses a write after another one that this one has not seen.
func (s *giteaSecret) Keep(ctx context.Context, token string) error {
	is, err := s.read(ctx)
	if err != nil {
		return err
	}
	create := is == nil
	if create {
		is = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.GiteaNamespace, Name: config.GiteaTokenSecret}}
	}
	if len(is.Data[giteaTokenKey]) > 0 {
		return gitea.ErrKept
	}
	if is.Data == nil {
		is.Data = map[string][]byte{}
	}
	is.Data[giteaTokenKey], is.Data[giteaURLKey] = []byte(token), []byte(s.url)
	write := func() error { return s.workload.Update(ctx, is) }
	if create {
		write = func() error { return s.workload.Create(ctx, is) }
	}
	switch err := write(); {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return gitea.ErrKept
	case err != nil:
		return fmt.Errorf("write Secret %s/%s: %w", config.GiteaNamespace, config.GiteaTokenSecret, err)
	}
	s.uid = is.UID
	return nil
}
