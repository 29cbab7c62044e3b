package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// LabFolder is the lab's folder.
func (k Cluster) LabFolder(state statedir.Dir) string {
	switch {
	case k.LabDir == "":
		return state.Lab()
	case filepath.IsAbs(k.LabDir):
		return filepath.Clean(k.LabDir)
	}
	return filepath.Join(k.Caller.WorkDir, k.LabDir)
}

// LabToInspect is the lab of a state folder, for what does not start it.
func (k Cluster) LabToInspect(state statedir.Dir) *lab.Lab {
	dir := k.LabFolder(state)
	return &lab.Lab{
		Dir: dir, Latency: k.LabLatency, API: k.LabAPI, Images: k.labImages(), Until: k.LabUntil,
		Client:  lab.NewClient(dir),
		WorkDir: k.Caller.WorkDir, Environment: k.Caller.Environment, CommandLine: k.Caller.Command,
	}
}

// LabToStart is LabToInspect for what may start the lab: with where its programs come from.
func (k Cluster) LabToStart(state statedir.Dir) (*lab.Lab, error) {
	if err := k.CheckLabImages(); err != nil {
		return nil, err
	}
	programs, err := lab.NewPrograms(k.Cfg.Config, k.Caller.WorkDir, k.Cfg.Overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	l := k.LabToInspect(state)
	l.Programs = programs
	return l, nil
}

// labImages is the path of the file with the lab's images; "" for none.
func (k Cluster) labImages() string {
	if k.LabImages == "" || filepath.IsAbs(k.LabImages) {
		return k.LabImages
	}
	return filepath.Join(k.Caller.WorkDir, k.LabImages)
}

// CheckLabImages finds a mistaken --lab-images before anything is made, and not when the lab is built and starts.
func (k Cluster) CheckLabImages() error {
	if k.LabImages == "" {
		return nil
	}
	info, err := os.Stat(k.labImages())
	if err == nil && info.IsDir() {
		err = errors.New("it is a folder")
	}
	if err != nil {
		return usage.Errorf("--lab-images %s: %w", k.LabImages, err)
	}
	return nil
}

// labIsPossible refuses a rehearsal that this machine cannot run.
func (s *Session) labIsPossible(ctx context.Context) error {
	if err := s.CheckLabImages(); err != nil || !s.Lab {
		return err
	}
	l, err := s.LabToStart(s.Folder)
	if err != nil {
		return err
	}
	return l.Possible(ctx)
}

// connectToLab starts the lab where it is down, and equips the session for it.
func (s *Session) connectToLab(ctx context.Context) error {
	l, err := s.LabToStart(s.Folder)
	if err != nil {
		return err
	}
	l.Client.Record(s.Effects)
	_, err = l.Answering(ctx)
	wasUp, outcome := err == nil, flow.Ran
	if wasUp {
		outcome = flow.Reused
	}
	if wasUp && (s.LabLatency != "fast" || s.LabImages != "" || s.LabAPI != lab.NewestAPI) {
		s.Hub.Note("the lab is up already: --lab-latency, --lab-api and --lab-images count when it starts")
	}
	var info lab.Info
	err = s.Hub.Task("lab", "the simulated environment of a rehearsal", func(say flow.Say) (err error) {
		info, err = s.startLab(ctx, l, say)
		return err
	})
	if err != nil {
		return err
	}
	s.PriorSteps = append(s.PriorSteps, flow.StepReport{Name: "lab", Outcome: outcome, Elapsed: time.Since(s.Began)})
	cfg, tools, notes, err := s.enterLab(s.Tools, l.Client, info, s.Limit)
	if err != nil {
		return err
	}
	if !wasUp { // they do not change while it is up
		notes = append(notes, info.Notes...)
	}
	for _, note := range notes {
		s.Hub.Note("%s", note)
	}
	if tools.Git = s.access.Git; tools.Git.Empty() && cfg.GitURL == info.Git.URL {
		tools.Git = info.GitAccess()
	}
	if err := cfg.MissingGitURL(); err != nil {
		return &usage.Error{Err: err}
	}
	s.Cfg, s.Tools = cfg, rehearsedManagement(cfg, tools, s.Folder, l, info)
	s.keepSetup()
	return nil
}

// startLab has the lab up, with what the configuration needs in it.
func (s *Session) startLab(ctx context.Context, l *lab.Lab, say flow.Say) (info lab.Info, err error) {
	if info, err = l.Up(ctx, say); err != nil {
		return info, err
	}
	// Before the repositories are looked at: they have a core from when the lab is given its program.
	if info, err = l.Add(ctx, lab.Core(), s.Cfg.CAPIVersion, say); err != nil {
		return info, err
	}
	if info, err = l.Client.OfferCharts(ctx, s.Cfg.Config); err != nil {
		return info, err
	}
	if s.Cfg.GitOps == config.GitOpsFlux {
		if info, err = l.AddFlux(ctx, s.Cfg.Config, say); err != nil {
			return info, err
		}
	}
	if s.Cfg.GitInGitea() { // the stand-in has no repositories
		if info, err = l.AddGitea(ctx, say); err != nil {
			return info, err
		}
	}
	if info, err = l.Client.Admit(ctx, s.Cfg.ClusterName); err != nil {
		return info, err
	}
	s.Caller.Hide.Learn(info.Token, info.Git.Token)
	if info.ImageBuild.Possible {
		return info, nil
	}
	say("no image can be built in this lab: %s", info.ImageBuild.Reason)
	return info, l.Client.PrepareImages(ctx, s.Cfg.Config, say)
}

// ProvideKubernetes makes sure that a lab has the programs that servers of a Kubernetes version run. One that the
// session has started has those of the configured version; one that was up before may have run another.
func (s *Session) ProvideKubernetes(ctx context.Context, version string) error {
	if !s.Lab {
		return nil
	}
	l, err := s.LabToStart(s.Folder)
	if err != nil {
		return err
	}
	info, err := l.Answering(ctx)
	if err != nil || !l.Needs(info, lab.Kubernetes(), version) {
		return err
	}
	return s.Hub.Task("lab", "the programs of another Kubernetes version", func(say flow.Say) error {
		_, err := l.Add(ctx, lab.Kubernetes(), version, say)
		return err
	})
}

// enterLab swaps the two things that are different in the lab, and configures what anyone could: address ranges,
// repositories and the versions in them.
func (k Cluster) enterLab(tools platform.Tools, client *lab.Client, info lab.Info,
	governor *ratelimit.Governor) (settings.Configuration, platform.Tools, []string, error) {
	cfg, notes, err := lab.Configure(k.Cfg, info)
	if err != nil {
		return cfg, tools, nil, err
	}
	// Never the environment's own token: a real one must not reach the lab.
	token := info.Token
	if wrong := k.Caller.Environment[settings.LabTokenVariable]; wrong != "" {
		token = wrong
	}
	tools.Token = platform.NewSecret(token)
	tools.Hetzner = HetznerClient(info.HetznerEndpoint, tools.Token, tools.Effects, governor)
	return cfg, client.Equip(tools, cfg.KubernetesVersion), notes, nil
}
