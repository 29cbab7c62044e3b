package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/gitea"
	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Gitea is what runs behind Gitea's Pod.
type Gitea struct {
	Fidelity string `json:"fidelity"` // real or stand-in
	Version  string `json:"version"`
	// Unreachable is why processes of other Pods cannot reach it by the name of its Service.
	Unreachable string `json:"unreachable,omitempty"`
}

// giteaFile, in the lab's folder, says that the lab runs Gitea itself in the place of the stand-in.
const giteaFile = "gitea"

// resumeGitea runs Gitea itself if the lab did before, or was told to.
func (lab *Lab) resumeGitea() error {
	if lab.cfg.Gitea == "" {
		return nil
	}
	for _, file := range []string{lab.path(giteaFile), lab.giteaProgram()} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return lab.useGitea()
}

// useGitea runs Gitea itself from now on. Its program stays as long as the lab runs.
func (lab *Lab) useGitea() error {
	if lab.realGitea.Load() {
		return nil
	}
	if err := lab.held.Hold(lab.cfg.Gitea); err != nil {
		return err
	}
	lab.realGitea.Store(true)
	return nil
}

// serveGitea runs Gitea itself in the running lab, once its program has been built.
func (lab *Lab) serveGitea(*http.Request) (any, error) {
	if lab.cfg.Gitea == "" {
		return nil, control.BadRequest(errors.New("this lab was started without a folder for Gitea's program: end it with " +
			"lab down, and begin again"))
	}
	if _, err := os.Stat(lab.giteaProgram()); err != nil {
		return nil, control.BadRequest(fmt.Errorf("Gitea's program: %w", err))
	}
	if err := lab.useGitea(); err != nil {
		return nil, err
	}
	return lab.info(), nil
}

func (lab *Lab) giteaProgram() string { return filepath.Join(lab.cfg.Gitea, "gitea") }

// giteaInfo is what runs behind Gitea's Pod.
func (lab *Lab) giteaInfo() Gitea {
	g := Gitea{Fidelity: kubelet.StandIn, Version: gitea.Version}
	if lab.realGitea.Load() {
		_, version, _ := strings.Cut(builtFrom(lab.giteaProgram()), " v")
		g = Gitea{Fidelity: kubelet.Real, Version: version}
	}
	if lab.sandboxes == nil {
		g.Unreachable = "Pods have no networks of their own: " + lab.shared
	}
	return g
}
