package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/gitserver"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/repository"
)

// Flux is where the lab's manifest of Flux is.
type Flux struct {
	Repository string `json:"repository,omitempty"` // folder with a folder for each version
	Version    string `json:"version,omitempty"`
}

// fluxOffer is Flux as the lab offers it, from when its programs are there.
type fluxOffer struct {
	mu sync.Mutex
	is Flux
}

func (o *fluxOffer) get() Flux {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.is
}

// resumeFlux offers Flux if its programs are built.
func (lab *Lab) resumeFlux(ctx context.Context) error {
	if lab.cfg.Flux == "" {
		return nil
	}
	if _, err := os.Stat(lab.cfg.Flux); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return lab.offerFlux(ctx)
}

// offerFlux writes the manifest of Flux for the lab's programs of it. The programs stay as long as the lab runs.
func (lab *Lab) offerFlux(ctx context.Context) error {
	lab.flux.mu.Lock()
	defer lab.flux.mu.Unlock()
	if lab.flux.is.Version != "" {
		return nil
	}
	if err := lab.held.Hold(lab.cfg.Flux); err != nil {
		return err
	}
	dir, err := repository.WriteFlux(ctx, lab.path("repository"), lab.cfg.Flux)
	if err != nil {
		return err
	}
	lab.flux.is = Flux{Repository: dir, Version: repository.FluxVersion}
	return nil
}

// serveFlux offers Flux in the running lab, once its programs have been built.
func (lab *Lab) serveFlux(r *http.Request) (any, error) {
	if lab.cfg.Flux == "" {
		return nil, control.BadRequest(errors.New("this lab was started without a folder for Flux's programs: end it " +
			"with lab down, and begin again"))
	}
	if _, err := os.Stat(lab.cfg.Flux); err != nil {
		return nil, control.BadRequest(fmt.Errorf("Flux's programs: %w", err))
	}
	if err := lab.offerFlux(context.WithoutCancel(r.Context())); err != nil {
		return nil, err
	}
	return lab.info(), nil
}

// Git is the lab's Git repository.
type Git struct {
	URL    string `json:"url,omitempty"`
	Branch string `json:"branch,omitempty"`
	User   string `json:"user,omitempty"`
	Token  string `json:"token,omitempty"`
}

// gitOffer is the lab's Git repository and its server.
type gitOffer struct {
	server  *gitserver.Server
	info    Git
	version string
	missing string // why there is none
}

// startGit serves the lab's Git repository until ctx is done, where the machine has git.
func (lab *Lab) startGit(ctx context.Context) error {
	token, err := ensureToken(lab.path("git-token"))
	if err != nil {
		return fmt.Errorf("the token of the lab's Git repository: %w", err)
	}
	server, err := gitserver.New(ctx, lab.path("git"), token, lab.cfg.Log)
	if err != nil {
		lab.git.missing = "the lab serves no Git repository, GITOPS needs a GIT_URL: " + err.Error()
		lab.cfg.Log.Warn("no Git repository is served", "reason", err)
		return nil
	}
	l, err := lab.cfg.Network.Listen(ctx, lab.state.Slot().Git())
	if err != nil {
		return fmt.Errorf("serve a Git repository: %w", err)
	}
	lab.serve(ctx, l, server.Handler())
	lab.git = gitOffer{server: server, version: server.Version(ctx), info: Git{
		URL: "http://" + lab.state.Slot().Git() + gitserver.Path, Branch: gitserver.Branch, User: gitserver.User,
		Token: token}}
	return nil
}

// serveGit ensures that the repository has something at a path: the file, if there is nothing.
func (lab *Lab) serveGit(r *http.Request) (any, error) {
	var wanted struct{ Path, File, Content string }
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, control.BadRequest(fmt.Errorf("read the request: %w", err))
	}
	if lab.git.server == nil {
		return nil, control.BadRequest(errors.New(lab.git.missing))
	}
	return struct{}{}, lab.git.server.Ensure(r.Context(), wanted.Path, wanted.File, wanted.Content)
}

// unbuiltFlux says whether a program is one of Flux that the lab does not have.
func (lab *Lab) unbuiltFlux(p kubelet.Program) bool {
	return lab.cfg.Flux != "" && filepath.Dir(p.Exec) == lab.cfg.Flux && lab.flux.get().Version == ""
}

// gitOpsParts describes the Git repository, and Flux's manifest.
func (lab *Lab) gitOpsParts() (parts []Part) {
	if lab.git.server != nil {
		parts = append(parts, Part{"Git server", kubelet.StandIn, fmt.Sprintf(
			"%s over HTTP: %s, user %s, token in %s", lab.git.version, lab.git.info.URL, lab.git.info.User,
			lab.path("git-token"))})
	}
	if flux := lab.flux.get(); flux.Version != "" {
		parts = append(parts, Part{"Flux manifest", kubelet.Real, "of " + flux.Version + " with source-controller, " +
			"kustomize-controller and helm-controller, without notification-controller: built from the modules of the " +
			"programs' versions"})
	}
	return parts
}
