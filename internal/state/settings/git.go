package settings

import (
	"context"
	"os"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// GitAccess reads what Flux is to read the Git repository with: the deploy key, or the token of the environment, of a
// file or of a command. It is held in memory only. Its errors never contain what was read. Without GITOPS, and
// for a repository in the cluster's own Gitea, nothing is read.
func (c Configuration) GitAccess(ctx context.Context, environment map[string]string) (platform.GitAccess, error) {
	access := platform.GitAccess{User: c.GitUser}
	read := func(path, what string) (string, error) {
		data, err := os.ReadFile(AtHome(path, environment["HOME"]))
		if err != nil {
			return "", usage.Errorf("read %s of the Git repository: %w", what, err)
		}
		return string(data), nil
	}
	const what = "Git token"
	var err error
	switch {
	case c.GitOps == "", c.GitInGitea(): // the token of a Gitea in the cluster is in the cluster
		return platform.GitAccess{}, nil
	case c.GitOverSSH():
		key, err := read(c.GitKeyFile, "the deploy key (gitKeyFile)")
		if err != nil {
			return access, err
		}
		access.Key = platform.NewSecret(key)
		access.KnownHosts, err = read(c.GitKnownHostsFile, "the keys of the host (gitKnownHostsFile)")
		return access, err
	case c.GitTokenFile != "":
		token, err := read(c.GitTokenFile, "the token (gitTokenFile)")
		if err != nil {
			return access, err
		}
		access.Token, err = oneWord(token, what, "the file "+c.GitTokenFile+" (gitTokenFile)")
		return access, err
	case c.GitTokenCommand != "":
		token, err := OutputOf(ctx, c.GitTokenCommand)
		if err != nil {
			return access, usage.Errorf("run gitTokenCommand for the token of the Git repository: %w", err)
		}
		access.Token, err = oneWord(token, what, "the command of gitTokenCommand")
		return access, err
	case environment[GitTokenVariable] != "":
		access.Token, err = oneWord(environment[GitTokenVariable], what, "the environment variable "+GitTokenVariable)
	}
	return access, err
}
