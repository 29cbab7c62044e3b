package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/gitea"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// giteaEach bounds one attempt, so that a Gitea that swallows a request does not cost the whole wait.
const giteaEach = wait.TakenWithin

// giteaAPI is the wait for Gitea to answer, of each step that asks it for something.
func giteaAPI(c config.Config) flow.Wait {
	return flow.Wait{For: "Gitea's API (GITEA_TIMEOUT)", Within: c.GiteaTimeout.D()}
}

// askGitea has ask done, again and again until Gitea answers it, or its answer stays the same.
func (s *Set) askGitea(ctx context.Context, say flow.Say, workload *kube.Cluster,
	ask func(context.Context, *gitea.Client) error) error {
	err := wait.Wait{What: "Gitea's API", Within: s.cfg.GiteaTimeout.D(), Each: giteaEach}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			c, done, err := s.giteaClient(ctx, workload)
			if err != nil {
				return err.Error(), nil
			}
			defer done()
			final := (*wait.FinalError)(nil)
			switch err := ask(ctx, c); {
			case err == nil:
				return "", nil
			case errors.As(err, &final):
				return "", err
			case gitea.Final(err):
				return "", wait.Final(giteaRefused(err))
			default:
				return err.Error(), nil
			}
		})
	var late *wait.TimeoutError
	if errors.As(err, &late) {
		return fmt.Errorf("%w; see %s, then run it again, or give it longer with GITEA_TIMEOUT", err,
			s.tools.Command("logs", config.AddonGitea, "--no-follow"))
	}
	return err
}

func giteaRefused(err error) error {
	if refused := (*gitea.Refused)(nil); errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		return fmt.Errorf("%w; the password in Secret %s/%s is not the administrator's: a restart of Gitea's Pod makes it so",
			err, config.GiteaNamespace, config.GiteaAdminSecret)
	}
	return err
}

// giteaClient is a client of Gitea's API by way of one of its Pods, as the administrator. done closes its connections.
func (s *Set) giteaClient(ctx context.Context, workload *kube.Cluster) (c *gitea.Client, done func(), err error) {
	user, password, err := giteaCredentials(ctx, workload)
	if err != nil {
		return nil, nil, err
	}
	pod, err := workload.ReadyPodOf(ctx, config.GiteaNamespace, config.GiteaService)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return workload.DialPod(ctx, config.GiteaNamespace, pod, config.GiteaPort)
	}}
	where := fmt.Sprintf("Gitea (Pod %s/%s, port %d)", config.GiteaNamespace, pod, config.GiteaPort)
	return gitea.New(s.tools.Effects.Transport(transport, effect.Gitea, effect.GiteaCall), where, user, password),
		transport.CloseIdleConnections, nil
}
