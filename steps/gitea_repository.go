package steps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/gitea"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

// GiteaRepository is the repository in Gitea that Flux applies.
type GiteaRepository struct {
	ID    int64  `json:"id"`
	Owner string `json:"owner"`
	Name  string `json:"name"`
	URL   string `json:"url"` // for programs in the cluster
}

// GiteaRepository adds the step gitea-repository to a graph: there is a repository in Gitea for Flux to apply.
func (s *Set) GiteaRepository(g *flow.Graph) *flow.Step[GiteaRepository] {
	return flow.Add(g, flow.Task[GiteaRepository]{
		Name: "gitea-repository",
		Doc:  "a repository in Gitea has the tree from which Flux manages the releases",
		Run:  doIn(s, s.runGiteaRepository),
		Spec: map[string]string{
			"repository": s.cfg.GiteaRepository,
			"branch":     s.cfg.GitBranch,
			"path":       s.cfg.GitFolder(),
		},
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyGiteaRepository),
		Deadline: s.cfg.GiteaTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{giteaAPI(s.cfg)},
	})
}

func (s *Set) runGiteaRepository(ctx context.Context, say flow.Say, workload *kube.Cluster) (out GiteaRepository,
	err error) {
	say("ensuring repository %s of Gitea, with %s on branch %s", s.cfg.GiteaRepository, s.cfg.GitFolder(), s.cfg.GitBranch)
	err = s.askGitea(ctx, say, workload, func(ctx context.Context, c *gitea.Client) error {
		is, did, err := gitea.EnsureRepository(ctx, c, gitea.WantedRepository{Name: s.cfg.GiteaRepository,
			Branch: s.cfg.GitBranch, Folder: s.cfg.GitFolder(), Message: "Manage the releases of cluster " + s.cfg.ClusterName,
			First: func(ctx context.Context) ([]gitea.File, error) { return s.giteaTree(ctx, say, workload) }})
		if unusable := (*gitea.Unusable)(nil); errors.As(err, &unusable) {
			return fmt.Errorf("%w: create it in Gitea, or name another one with GIT_BRANCH", err)
		}
		if err != nil {
			return err
		}
		switch {
		case did.Created:
			say("created repository %s/%s", is.Owner.Login, is.Name)
		case !is.Private:
			say("note: repository %s/%s of Gitea is not private", is.Owner.Login, is.Name)
		}
		if did.Committed {
			say("committed the releases of the cluster to %s", s.cfg.GitFolder())
		} else {
			say("%s is there, and stays as it is", s.cfg.GitFolder())
		}
		out = GiteaRepository{ID: is.ID, Owner: is.Owner.Login, Name: is.Name,
			URL: strings.Join([]string{s.cfg.GiteaURL(), is.Owner.Login, is.Name + ".git"}, "/")}
		return s.giteaReadable(ctx, c, workload)
	})
	return out, err
}

// giteaReadable is nil if the token with which Flux is to read the repository does read it.
func (s *Set) giteaReadable(ctx context.Context, c *gitea.Client, workload *kube.Cluster) error {
	token, err := keptGiteaToken(ctx, workload)
	if err != nil {
		return err
	}
	err = c.Reads(ctx, token.Reveal(), s.cfg.GiteaRepository)
	if refused := (*gitea.Refused)(nil); errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized ||
		refused.Status == http.StatusForbidden || refused.Status == http.StatusNotFound) {
		return wait.Final(fmt.Errorf("read repository %s with the token in Secret %[2]s/%[3]s, as Flux is to: %[4]w; to have "+
			"another token: kubectl delete secret --namespace %[2]s %[3]s, and run %[5]s", s.cfg.GiteaRepository,
			config.GiteaNamespace, config.GiteaTokenSecret, err, s.tools.Command("gitea-token")))
	}
	return err
}

// giteaTree is what the repository begins with: the releases of the cluster. The Secrets that it names are created
// before it is committed, so that Flux finds them; one that exists stays.
func (s *Set) giteaTree(ctx context.Context, say flow.Say, workload *kube.Cluster) ([]gitea.File, error) {
	hide := &redact.Redactor{}
	hide.Learn(s.tools.Token.Reveal(), s.tools.GitHubToken.Reveal(), s.tools.Git.Token.Reveal())
	releases, left, err := flux.ReadReleases(ctx, workload, s.cfg, hide)
	if err != nil {
		return nil, err
	}
	tree, err := flux.MakeTree(s.cfg, releases, left, flux.Folder{})
	if err != nil {
		return nil, wait.Final(err)
	}
	for _, l := range left {
		say("note: Helm release %s is not in the repository: %s", l.Release, l.Why)
	}
	secrets, err := flux.ReleaseSecrets(releases)
	if err != nil {
		return nil, wait.Final(err)
	}
	for _, secret := range secrets {
		say("ensuring Secret %s/%s with values that Git must not have", secret.Namespace, secret.Name)
		switch err := workload.Create(ctx, secret); {
		case err == nil, apierrors.IsAlreadyExists(err):
		case kube.Unwell(err):
			return nil, fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		default:
			return nil, wait.Final(fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err))
		}
	}
	var files []gitea.File
	for _, f := range tree.Files {
		files = append(files, gitea.File{Path: f.Path, Content: f.Content})
	}
	return files, nil
}

// errNoGiteaToken says that gitea-token has not run, or that the Secret is gone since.
var errNoGiteaToken = fmt.Errorf("Secret %s/%s has no token", config.GiteaNamespace, config.GiteaTokenSecret)

// keptGiteaToken reads the token that gitea-token has written.
func keptGiteaToken(ctx context.Context, workload *kube.Cluster) (platform.Secret, error) {
	token, err := (&giteaSecret{workload: workload}).Token(ctx)
	if err == nil && token == "" {
		err = errNoGiteaToken
	}
	return platform.NewSecret(token), err
}

// verifyGiteaRepository asks Gitea whether the recorded repository is there, with something in the folder that Flux
// applies.
func (s *Set) verifyGiteaRepository(ctx context.Context, workload *kube.Cluster, was GiteaRepository) flow.Verdict {
	c, done, err := s.giteaClient(ctx, workload)
	if unready := (*kube.NoReadyPodError)(nil); errors.As(err, &unready) {
		return flow.Gone("%v", err)
	}
	if err != nil {
		return kube.Verdict(err)
	}
	defer done()
	if err := c.Ready(ctx); err != nil { // the step waits for it, and looks before it creates anything
		return flow.Gone("Gitea does not answer: %v", err)
	}
	is, err := c.Repository(ctx, was.Name)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case is == nil || is.ID != was.ID:
		return flow.Gone("repository %s/%s of Gitea does not exist any more", was.Owner, was.Name)
	}
	has, err := c.Has(ctx, was.Name, s.cfg.GitBranch, s.cfg.GitFolder())
	switch {
	case err != nil:
		return flow.Unknown(err)
	case !has:
		return flow.Gone("repository %s/%s of Gitea has no %s on branch %s", was.Owner, was.Name, s.cfg.GitFolder(),
			s.cfg.GitBranch)
	}
	return flow.Holds()
}
