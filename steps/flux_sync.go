package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

// FluxSync names the objects by which Flux applies the Git repository, and what it had applied when the step ended.
type FluxSync struct {
	Revision      string       `json:"revision"`
	Secret        *TokenSecret `json:"secret,omitempty"` // nil: the repository is read without credentials
	GitRepository string       `json:"gitRepository"`    // UID; empty: OCIRepository is what is read
	OCIRepository string       `json:"ociRepository,omitempty"`
	Kustomization string       `json:"kustomization"` // UID
}

// FluxSync adds the step flux-sync to a graph: Flux has applied the configured repository, or the one in Gitea; nil:
// it is not in Gitea.
func (s *Set) FluxSync(g *flow.Graph, installed *flow.Step[Flux],
	inGitea *flow.Step[GiteaRepository]) *flow.Step[FluxSync] {
	run := flow.With1(s.runFluxSync, installed)
	if inGitea != nil {
		run = flow.With2(s.runFluxSyncInGitea, installed, inGitea)
	}
	return flow.Add(g, flow.Task[FluxSync]{
		Name:     "flux-sync",
		Doc:      "Flux has applied the Git repository, or that of a registry, to the cluster",
		Run:      run,
		Spec:     fluxSyncSpec(s.cfg),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyFluxSync),
		Deadline: s.cfg.ReleaseTimeout.D() + 3*wait.TakenWithin + wait.Overhead,
		Waits: []flow.Wait{
			wait.Taken,
			{
				For:    "the API server to take the GitRepository or OCIRepository, and the Kustomization",
				Within: 2 * wait.TakenWithin,
			},
			{For: "Flux to apply the repository (RELEASE_TIMEOUT)", Within: s.cfg.ReleaseTimeout.D()},
		},
	})
}

// fluxSyncSpec is what the step is made from: the journal has it.
func fluxSyncSpec(cfg config.Config) map[string]string {
	spec := map[string]string{"url": cfg.GitURL, "path": cfg.GitFolder()}
	if cfg.FromRegistry() {
		spec["tag"] = cfg.OCITag
	} else {
		spec["branch"] = cfg.GitBranch
	}
	return spec
}

func (s *Set) runFluxSync(ctx context.Context, say flow.Say, _ Flux) (FluxSync, error) {
	if err := s.cfg.MissingGitURL(); err != nil {
		return FluxSync{}, err
	}
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return FluxSync{}, err
	}
	return s.syncFlux(ctx, say, workload, s.tools.Git)
}

// runFluxSyncInGitea has Flux apply a repository in Gitea, with Gitea's token.
func (s *Set) runFluxSyncInGitea(ctx context.Context, say flow.Say, _ Flux, in GiteaRepository) (FluxSync, error) {
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return FluxSync{}, err
	}
	token, err := keptGiteaToken(ctx, workload)
	if err != nil {
		return FluxSync{}, err
	}
	own := *s
	own.cfg.GitURL = in.URL
	return own.syncFlux(ctx, say, workload, platform.GitAccess{User: in.Owner, Token: token})
}

// syncFlux has Flux apply the repository of the configuration.
func (s *Set) syncFlux(ctx context.Context, say flow.Say, workload *kube.Cluster, access platform.GitAccess) (
	FluxSync, error) {
	var out FluxSync
	credentials, err := flux.Credentials(s.cfg, access)
	if err != nil {
		return FluxSync{}, err
	}
	if credentials != nil {
		secret := flux.Secret(s.cfg, credentials)
		say("writing Secret %s/%s", flux.Namespace, secret.GetName())
		if err := apply.Object(ctx, say, workload, secret); err != nil {
			return FluxSync{}, err
		}
		out.Secret = &TokenSecret{Namespace: flux.Namespace, Name: secret.GetName(), UID: string(secret.GetUID())}
	}
	// So that what the controllers say is of now: of these credentials, and not of the last ones.
	requested := time.Now().UTC().Format(time.RFC3339Nano)
	repository, sync := flux.Source(s.cfg, credentials != nil), flux.Kustomization(s.cfg)
	for _, o := range []*unstructured.Unstructured{repository, sync} {
		o.SetAnnotations(map[string]string{flux.RequestedAt: requested})
		say("applying %s: %s, %s, %s", kube.Describe(o), kube.WithoutCredentials(s.cfg.GitURL), s.fluxRef(), s.cfg.GitFolder())
		if err := apply.Object(ctx, say, workload, o); err != nil {
			return FluxSync{}, err
		}
	}
	out.Kustomization = string(sync.GetUID())
	if uid := string(repository.GetUID()); s.cfg.FromRegistry() {
		out.OCIRepository = uid
	} else {
		out.GitRepository = uid
	}
	if out.Revision, err = s.awaitFluxSync(ctx, say, workload, requested); err != nil {
		return out, err
	}
	s.noteUnusedSource(ctx, say, workload)
	return out, nil
}

// noteUnusedSource names the object of the other kind of repository, which an earlier configuration has left. It stays:
// something of the operator may read it.
func (s *Set) noteUnusedSource(ctx context.Context, say flow.Say, workload *kube.Cluster) {
	other := flux.OCIRepositoryKind
	if s.cfg.FromRegistry() {
		other = flux.GitRepositoryKind
	}
	o, err := readFluxObject(ctx, workload, other)
	if err != nil {
		return // there is none, or the note is not worth the step
	}
	say("note: the Kustomization does not read %s any more; to remove it: kubectl --namespace %s delete %s %s",
		kube.Describe(o), flux.Namespace, strings.ToLower(o.GetKind()), flux.Name)
}

// fluxRef is what of the repository is read.
func (s *Set) fluxRef() string {
	if s.cfg.FromRegistry() {
		return "tag " + s.cfg.OCITag
	}
	return "branch " + s.cfg.GitBranch
}

// awaitFluxSync waits until the Kustomization has applied what the source-controller has read, and returns that
// revision.
func (s *Set) awaitFluxSync(ctx context.Context, say flow.Say, workload *kube.Cluster, requested string) (
	revision string, err error) {
	in := []client.ListOption{client.InNamespace(flux.Namespace)}
	selected := []kube.Selection{{List: capi.ListOf(flux.SourceKind(s.cfg)), Options: in},
		{List: capi.ListOf(flux.KustomizationKind), Options: in}}
	w := wait.Wait{What: "Flux to apply the repository", Within: s.cfg.ReleaseTimeout.D()}
	err = untilIn(ctx, say, w, workload, selected, func(ctx context.Context) (string, error) {
		source, err := readFluxObject(ctx, workload, flux.SourceKind(s.cfg))
		if err != nil {
			return "", err
		}
		sync, err := readFluxObject(ctx, workload, flux.KustomizationKind)
		if err != nil {
			return "", err
		}
		read, applied := flux.StateOf(source, requested), flux.StateOf(sync, requested)
		for _, is := range []flux.State{read, applied} {
			switch {
			// What was tried may be an older revision: the one that was read may mend it.
			case is.Stalled || is.Rejected && is.Attempted == read.Revision:
				return "", wait.Final(fmt.Errorf("Flux does not apply %s: %s", kube.WithoutCredentials(s.cfg.GitURL),
					is.Reason))
			case is.Suspended:
				return "", wait.Final(fmt.Errorf("%s, so that Flux does not apply the repository: to resume it, "+
					"flux resume, or set its spec.suspend to false", is.Reason))
			case !is.Ready:
				return is.Reason, nil
			}
		}
		if applied.Revision != read.Revision {
			return fmt.Sprintf("the Kustomization has applied %s, and the %s has read %s", applied.Revision,
				flux.SourceKind(s.cfg).Kind, read.Revision), nil
		}
		revision = read.Revision
		return "", nil
	})
	return revision, err
}

// readFluxObject reads one of the objects by which Flux applies the repository.
func readFluxObject(ctx context.Context, c *kube.Cluster, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Namespace: flux.Namespace, Name: flux.Name}, o); err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", kind.Kind, flux.Namespace, flux.Name, err)
	}
	return o, nil
}

// verifyFluxSync asks whether the recorded objects are there and Flux applies the repository by them. Suspended ones
// hold: who suspended them wants nothing applied.
func (s *Set) verifyFluxSync(ctx context.Context, workload *kube.Cluster, was FluxSync) flow.Verdict {
	want, err := flux.Credentials(s.cfg, s.tools.Git) // nil also where a command does not read them
	if s.cfg.GitInGitea() {
		var token platform.Secret
		token, err = keptGiteaToken(ctx, workload)
		want = map[string]string{"password": token.Reveal()}
	}
	if errors.Is(err, errNoGiteaToken) {
		return flow.Gone("%v", err)
	}
	if err != nil {
		return flow.Unknown(err)
	}
	if was.Secret == nil && want != nil {
		return flow.Gone("the repository was read without credentials, and now there are some")
	}
	if was.Secret != nil {
		if v := verifySecret(ctx, workload, *was.Secret, want); v.Answer() != flow.AnswerHolds {
			return v
		}
	}
	source := cmp.Or(was.OCIRepository, was.GitRepository)
	for _, is := range []struct {
		kind schema.GroupVersionKind
		uid  string
	}{{flux.SourceKind(s.cfg), source}, {flux.KustomizationKind, was.Kustomization}} {
		o, err := readFluxObject(ctx, workload, is.kind)
		if err != nil {
			return kube.Verdict(err)
		}
		if string(o.GetUID()) != is.uid {
			return flow.Gone("%s is another one than the recorded", kube.Describe(o))
		}
		if state := flux.StateOf(o, ""); !state.Ready && !state.Suspended {
			return flow.Gone("%s", state.Reason)
		}
	}
	return flow.Holds()
}
