package lab

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// flux are the programs of Flux's controllers.
func (b *builder) flux() extra {
	configured := b.sets.config.GitOps == config.GitOpsFlux
	return extra{name: "Flux's controllers", module: filepath.Join(b.source, "flux", "2.7"), file: "flux",
		configured: configured, needed: configured, setting: "GITOPS=" + config.GitOpsFlux}
}

// AddFlux makes sure that the lab, which is up, has Flux's controllers, and that its Git repository has the folder that
// the cluster reads. It returns the lab's info afterwards.
func (l *Lab) AddFlux(ctx context.Context, cfg config.Config, say flow.Say) (info Info, err error) {
	if info, err = l.Answering(ctx); err != nil {
		return info, err
	}
	if info.Flux.Version == "" {
		b, err := l.builder()
		if err != nil {
			return info, err
		}
		if err := b.flux().record(b); err != nil {
			return info, err
		}
		if _, err := b.flux().build(ctx, b, say); err != nil {
			return info, err
		}
		if err := l.Client.Send(ctx, http.MethodPut, "/v1/flux", nil, &info); err != nil {
			return info, err
		}
		say("the lab has Flux %s", info.Flux.Version)
	}
	if info.Git.URL == "" || cfg.GitInGitea() || cfg.GitURL != "" && cfg.GitURL != info.Git.URL {
		return info, nil
	}
	return info, l.Client.Send(ctx, http.MethodPut, "/v1/git", firstManifest(cfg), nil)
}

// GitAccess is what the lab's Git repository is read with.
func (i Info) GitAccess() platform.GitAccess {
	return platform.GitAccess{User: i.Git.User, Token: platform.NewSecret(i.Git.Token)}
}

// firstManifest is what the lab's repository begins with at the configured path: Flux refuses a path without manifests.
func firstManifest(cfg config.Config) map[string]string {
	return map[string]string{"path": cfg.GitFolder(), "file": cfg.GitFolder() + "/cluster.yaml", "content": fmt.Sprintf(
		`apiVersion: v1
kind: ConfigMap
metadata:
  name: cluster
  namespace: flux-system
data:
  name: %s
`, cfg.ClusterName)}
}
