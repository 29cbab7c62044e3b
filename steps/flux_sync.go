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
	step := fluxSyncStep{cfg: s.cfg, tools: s.tools}
	run := flow.With1(step.run, installed)
	if inGitea != nil {
		run = flow.With2(step.runInGitea, installed, inGitea)
	}
	return flow.Add(g, flow.Task[FluxSync]{
		Name:     "flux-sync",
		Doc:      "Flux has applied the Git repository, or that of a registry, to the cluster",
		Run:      run,
		Spec:     fluxSyncSpec(s.cfg),
		Verify:   step.verify,
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

// fluxSyncStep runs and verifies the step flux-sync.
type fluxSyncStep struct {
	cfg   config.Config
	tools platform.Tools
}

func (f fluxSyncStep) run(ctx context.Context, say flow.Say, _ Flux) (FluxSync, error) {
	if err := f.cfg.MissingGitURL(); err != nil {
		return FluxSync{}, err
	}
	workload, err := connect.Cluster(f.tools, platform.Kubeconfig)
	if err != nil {
		return FluxSync{}, err
	}
	return f.sync(ctx, say, workload, f.tools.Git)
}

// runInGitea has Flux apply a repository in Gitea, with Gitea's token.
func (f fluxSyncStep) runInGitea(ctx context.Context, say flow.Say, _ Flux, in GiteaRepository) (FluxSync, error) {
	workload, err := connect.Cluster(f.tools, platform.Kubeconfig)
	if err != nil {
		return FluxSync{}, err
	}
	token, err := keptGiteaToken(ctx, workload)
	if err != nil {
		return FluxSync{}, err
	}
	f.cfg.GitURL = in.URL
	return f.sync(ctx, say, workload, platform.GitAccess{User: in.Owner, Token: token})
}

// sync has Flux apply the repository of the configuration.
func (f fluxSyncStep) sync(ctx context.Context, say flow.Say, workload *kube.Cluster, access platform.GitAccess) (
	FluxSync, error) {
	var out FluxSync
	credentials, err := flux.Credentials(f.cfg, access)
	if err != nil {
		return FluxSync{}, err
	}
	if credentials != nil {
		secret := flux.Secret(f.cfg, credentials)
		say("writing Secret %s/%s", flux.Namespace, secret.GetName())
		if err := apply.Object(ctx, say, workload, secret); err != nil {
			return FluxSync{}, err
		}
		out.Secret = &TokenSecret{Namespace: flux.Namespace, Name: secret.GetName(), UID: string(secret.GetUID())}
	}
	// So that what the controllers say is of now: of these credentials, and not of the last ones.
	requested := time.Now().UTC().Format(time.RFC3339Nano)
	repository, sync := flux.Source(f.cfg, credentials != nil), flux.Kustomization(f.cfg)
	for _, o := range []*unstructured.Unstructured{repository, sync} {
		o.SetAnnotations(map[string]string{flux.RequestedAt: requested})
		say("applying %s: %s, %s, %s", kube.Describe(o), kube.WithoutCredentials(f.cfg.GitURL), f.ref(), f.cfg.GitFolder())
		if err := apply.Object(ctx, say, workload, o); err != nil {
			return FluxSync{}, err
		}
	}
	out.Kustomization = string(sync.GetUID())
	if uid := string(repository.GetUID()); f.cfg.FromRegistry() {
		out.OCIRepository = uid
	} else {
		out.GitRepository = uid
	}
	if out.Revision, err = f.await(ctx, say, workload, requested); err != nil {
		return out, err
	}
	f.unused(ctx, say, workload)
	return out, nil
}

// unused names the object of the other kind of repository, which an earlier configuration has left. It stays: something
// of the operator may read it.
func (f fluxSyncStep) unused(ctx context.Context, say flow.Say, workload *kube.Cluster) {
	o := &unstructured.Unstructured{}
	if o.SetGroupVersionKind(flux.OCIRepositoryKind); f.cfg.FromRegistry() {
		o.SetGroupVersionKind(flux.GitRepositoryKind)
	}
	if err := workload.Get(ctx, client.ObjectKey{Namespace: flux.Namespace, Name: flux.Name}, o); err != nil {
		return // there is none, or the note is not worth the step
	}
	say("note: the Kustomization does not read %s any more; to remove it: kubectl --namespace %s delete %s %s",
		kube.Describe(o), flux.Namespace, strings.ToLower(o.GetKind()), flux.Name)
}

// ref is what of the repository is read.
func (f fluxSyncStep) ref() string {
	if f.cfg.FromRegistry() {
		return "tag " + f.cfg.OCITag
	}
	return "branch " + f.cfg.GitBranch
}

// await waits until the Kustomization has applied what the source-controller has read, and returns that revision.
func (f fluxSyncStep) await(ctx context.Context, say flow.Say, workload *kube.Cluster, requested string) (
	revision string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	in := []client.ListOption{client.InNamespace(flux.Namespace)}
	changes := workload.Changes(watching, kube.Selection{List: listOf(flux.SourceKind(f.cfg)), Options: in},
		kube.Selection{List: listOf(flux.KustomizationKind), Options: in})
	waiting := wait.Wait{What: "Flux to apply the repository", Within: f.cfg.ReleaseTimeout.D(), Changes: changes}
	err = waiting.Until(ctx, say, func(ctx context.Context) (string, error) {
		read, err := fluxState(ctx, workload, flux.SourceKind(f.cfg), requested)
		if err != nil {
			return "", err
		}
		applied, err := fluxState(ctx, workload, flux.KustomizationKind, requested)
		if err != nil {
			return "", err
		}
		for _, s := range []flux.State{read, applied} {
			switch {
			// What was tried may be an older revision: the one that was read may mend it.
			case s.Stalled || s.Rejected && s.Attempted == read.Revision:
				return "", wait.Final(fmt.Errorf("Flux does not apply %s: %s", kube.WithoutCredentials(f.cfg.GitURL),
					s.Reason))
			case s.Suspended:
				return "", wait.Final(fmt.Errorf("%s, so that Flux does not apply the repository: to resume it, "+
					"flux resume, or set its spec.suspend to false", s.Reason))
			case !s.Ready:
				return s.Reason, nil
			}
		}
		if applied.Revision != read.Revision {
			return fmt.Sprintf("the Kustomization has applied %s, and the %s has read %s", applied.Revision,
				flux.SourceKind(f.cfg).Kind, read.Revision), nil
		}
		revision = read.Revision
		return "", nil
	})
	return revision, err
}

// fluxState reads the state of one of the two objects.
func fluxState(ctx context.Context, c *kube.Cluster, kind schema.GroupVersionKind, requested string) (flux.State, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Namespace: flux.Namespace, Name: flux.Name}, o); err != nil {
		return flux.State{}, fmt.Errorf("get %s %s/%s: %w", kind.Kind, flux.Namespace, flux.Name, err)
	}
	return flux.StateOf(o, requested), nil
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// verify asks whether the recorded objects are there and Flux applies the repository by them. Suspended ones hold: who
// suspended them wants nothing applied.
func (f fluxSyncStep) verify(ctx context.Context, was FluxSync) flow.Verdict {
	workload, err := connect.Cluster(f.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	want, err := flux.Credentials(f.cfg, f.tools.Git) // nil also where a command does not read them
	if f.cfg.GitInGitea() {
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
	}{{flux.SourceKind(f.cfg), source}, {flux.KustomizationKind, was.Kustomization}} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(is.kind)
		if err := workload.Get(ctx, client.ObjectKey{Namespace: flux.Namespace, Name: flux.Name}, o); err != nil {
			return kube.Verdict(fmt.Errorf("get %s %s/%s: %w", is.kind.Kind, flux.Namespace, flux.Name, err))
		}
		if string(o.GetUID()) != is.uid {
			return flow.Gone("%s is another one than the recorded", kube.Describe(o))
		}
		if s := flux.StateOf(o, ""); !s.Ready && !s.Suspended {
			return flow.Gone("%s", s.Reason)
		}
	}
	return flow.Holds()
}
