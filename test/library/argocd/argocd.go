// Package argocd has Argo CD instead of Flux: its chart is an add-on, and a step applies the first Application.
package argocd

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace, application = "argocd", "platform"

// Chart is Argo CD 3.1.5. Slipway installs and upgrades it in the step addon-argo-cd.
var Chart = config.Addon{Name: "argo-cd", Chart: "argo-cd", Version: "8.5.0",
	Repository: "https://argoproj.github.io/argo-helm", Namespace: namespace}

// Add adds the step argocd to the plan of a configuration that has Chart among its add-ons: an Application by which
// Argo CD applies a folder of a Git repository. The output is its UID.
func Add(p *steps.Plan, kubeconfig, repository, folder string) *flow.Step[string] {
	install := func(ctx context.Context, say flow.Say) (string, error) {
		c, err := applications(kubeconfig)
		if err != nil {
			return "", err
		}
		say("applying Application %s/%s: %s, %s", namespace, application, repository, folder)
		made, err := c.Apply(ctx, application, object(repository, folder), meta.ApplyOptions{FieldManager: "argocd"})
		if err != nil {
			return "", err
		}
		return string(made.GetUID()), nil
	}
	verify := func(ctx context.Context, uid string) flow.Verdict {
		c, err := applications(kubeconfig)
		if err != nil {
			return flow.Unknown(err)
		}
		switch is, err := c.Get(ctx, application, meta.GetOptions{}); {
		case apierrors.IsNotFound(err):
			return flow.Gone("Application %s/%s does not exist", namespace, application)
		case err != nil:
			return flow.Unknown(err)
		case string(is.GetUID()) != uid:
			return flow.Gone("Application %s/%s is another one than the recorded", namespace, application)
		}
		return flow.Holds()
	}
	step := flow.Add(p.Graph, flow.Task[string]{
		Name:           "argocd",
		Doc:            "Argo CD applies the Git repository",
		Run:            flow.Do(install),
		Spec:           map[string]string{"repository": repository, "folder": folder},
		Verify:         verify,
		ExemptFromSeal: true, // before and after the pivot
	})
	for _, addon := range p.EachAddon {
		if addon.Name() == steps.AddonStep(Chart.Name) {
			step.After(addon)
		}
	}
	p.All, p.Managed = append(p.All, step.Name()), append(p.Managed, step.Name())
	return step
}

// applications reads and writes Applications in the cluster of a kubeconfig's file.
func applications(kubeconfig string) (dynamic.ResourceInterface, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	return c.Resource(kind).Namespace(namespace), nil
}

func object(repository, folder string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": application, "namespace": namespace},
		"spec": map[string]any{"project": "default",
			"source":      map[string]any{"repoURL": repository, "path": folder, "targetRevision": "HEAD"},
			"destination": map[string]any{"server": "https://kubernetes.default.svc"},
			"syncPolicy":  map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true}}}}}
}
