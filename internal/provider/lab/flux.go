package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// fluxFile, in a lab's folder, says that a cluster of the lab may run Flux's controllers.
const fluxFile = "flux"

// fluxModule is the folder of the module that names the programs of Flux's controllers.
func (b *builder) fluxModule() string { return filepath.Join(b.source, "flux", "2.7") }

// fluxBin is the folder of those programs, built or not; empty: the lab's source has none.
func (b *builder) fluxBin(ctx context.Context) (string, error) {
	if !Exists(filepath.Join(b.fluxModule(), "go.mod")) {
		return "", nil
	}
	bin, _, err := b.bin(ctx, b.fluxModule())
	return bin, err
}

// buildFlux makes sure that the programs of Flux's controllers are built.
func (b *builder) buildFlux(ctx context.Context, say flow.Say) (string, error) {
	return b.compileTools(ctx, b.fluxModule(), "Flux's controllers", say)
}

// fluxToRun is the folder of Flux's programs for a lab that starts. They are built where they are configured, and where
// a cluster of the lab may run them.
func (b *builder) fluxToRun(ctx context.Context, say flow.Say) (string, error) {
	bin, err := b.fluxBin(ctx)
	if err != nil || bin == "" {
		return "", err
	}
	if b.sets.config.GitOps == config.GitOpsFlux {
		if err := b.recordFlux(); err != nil {
			return "", err
		}
	}
	if !Exists(filepath.Join(b.lab, fluxFile)) {
		return bin, nil
	}
	return b.buildFlux(ctx, say)
}

// recordFlux has the lab's later starts make sure of Flux's programs.
func (b *builder) recordFlux() error {
	if err := os.WriteFile(filepath.Join(b.lab, fluxFile), nil, 0o600); err != nil {
		return fmt.Errorf("write that the lab runs Flux: %w", err)
	}
	return nil
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
		if err := b.recordFlux(); err != nil {
			return info, err
		}
		if _, err := b.buildFlux(ctx, say); err != nil {
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

// fluxBuilt is nil if the programs of Flux's controllers are there, or are not configured.
func (b *builder) fluxBuilt(ctx context.Context) error {
	if b.sets.config.GitOps != config.GitOpsFlux {
		return nil
	}
	bin, err := b.fluxBin(ctx)
	if err == nil && !Exists(bin) {
		err = errors.New("the programs of Flux's controllers are not built: " +
			platform.ShellCommand("lab", "build", "GITOPS="+config.GitOpsFlux))
	}
	return err
}

// buildConfiguredFlux builds Flux's programs if they are configured. It returns the folders to keep; where others are
// removed, also one that is there and not configured.
func (b *builder) buildConfiguredFlux(ctx context.Context, prune bool, say flow.Say) ([]string, error) {
	bin, err := b.fluxBin(ctx)
	if err != nil || bin == "" {
		return nil, err
	}
	if b.sets.config.GitOps == config.GitOpsFlux {
		_, err := b.buildFlux(ctx, say)
		return []string{bin}, err
	}
	if prune && Exists(bin) {
		return []string{bin}, nil
	}
	return nil, nil
}
