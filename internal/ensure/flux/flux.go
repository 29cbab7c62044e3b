// Package flux describes an installation of Flux: the install manifest of its release, the objects by which it applies
// the configured repository, and what their conditions say. It also writes the tree of a Git repository from which Flux
// manages what Slipway installed in a cluster.
package flux

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Names as Flux's own command gives them.
const (
	Namespace = "flux-system"
	Name      = "flux-system" // of the Secret, the GitRepository or OCIRepository, and the Kustomization
	// RegistrySecret is the Secret's name where a registry is read: it has another type, which no write changes.
	RegistrySecret = "flux-system-registry"
)

// RequestedAt is the annotation that has a controller reconcile an object now.
const RequestedAt = "reconcile.fluxcd.io/requestedAt"

// Kinds of the objects.
var (
	OCIRepositoryKind = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"}
	GitRepositoryKind = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	KustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
)

// Address is where the install manifest of the configured release is: an address, or a path.
func Address(cfg config.Config) string {
	if filepath.IsAbs(cfg.FluxRepository) {
		return filepath.Join(cfg.FluxRepository, cfg.FluxVersion, "install.yaml")
	}
	return cfg.FluxRepository + "/" + cfg.FluxVersion + "/install.yaml"
}

// Manifest reads the install manifest of the configured release. A download that fails is tried again for a while.
func Manifest(ctx context.Context, cfg config.Config, say flow.Say) (data []byte, err error) {
	address := Address(cfg)
	say("reading %s", kube.WithoutCredentials(address))
	if filepath.IsAbs(address) {
		data, err = os.ReadFile(address)
	} else {
		err = wait.Retry(ctx, say, "the download of Flux's manifest", func() (err error) {
			data, err = kube.Download(ctx, address)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest of Flux %s (FLUX_REPOSITORY, FLUX_VERSION): %w", cfg.FluxVersion, err)
	}
	return data, nil
}

// Objects are those of an install manifest, in its order, and its workloads. A manifest without a workload is refused:
// it is no install manifest.
func Objects(cfg config.Config, manifest []byte) ([]*unstructured.Unstructured, []kube.Workload, error) {
	what := fmt.Sprintf("read the manifest of Flux %s, %s", cfg.FluxVersion, kube.WithoutCredentials(Address(cfg)))
	documents, err := kube.Documents(manifest)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	var objects []*unstructured.Unstructured
	for _, document := range documents {
		o, err := kube.Parse(document)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", what, err)
		}
		objects = append(objects, o)
	}
	workloads, err := kube.Workloads(string(manifest), Namespace)
	if err == nil && len(workloads) == 0 {
		err = fmt.Errorf("it has no Deployment among its %d objects", len(objects))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	return objects, workloads, nil
}

// SourceKind is the kind by which the source-controller reads the configured repository.
func SourceKind(cfg config.Config) schema.GroupVersionKind {
	if cfg.FromRegistry() {
		return OCIRepositoryKind
	}
	return GitRepositoryKind
}

// Credentials are the data of the Secret that Flux reads the repository with; nil: none is needed.
func Credentials(cfg config.Config, access platform.GitAccess) (map[string]string, error) {
	switch {
	case access.Empty():
		return nil, nil
	case cfg.FromRegistry():
		registry, err := cfg.Registry()
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(map[string]any{"auths": map[string]any{registry: map[string]string{
			"username": access.User, "password": access.Token.Reveal()}}})
		return map[string]string{corev1.DockerConfigJsonKey: string(data)}, err
	case access.Key.Reveal() != "":
		return map[string]string{"identity": access.Key.Reveal(), "known_hosts": access.KnownHosts}, nil
	}
	return map[string]string{"username": access.User, "password": access.Token.Reveal()}, nil
}

// Secret has credentials.
func Secret(cfg config.Config, data map[string]string) *unstructured.Unstructured {
	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	o := &unstructured.Unstructured{Object: map[string]any{"data": encoded}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	o.SetNamespace(Namespace)
	if o.SetName(secretName(cfg)); cfg.FromRegistry() {
		o.Object["type"] = string(corev1.SecretTypeDockerConfigJson)
	}
	return o
}

func secretName(cfg config.Config) string {
	if cfg.FromRegistry() {
		return RegistrySecret
	}
	return Name
}

// Source is the object by which the source-controller reads the configured branch, or the tag of a registry.
func Source(cfg config.Config, credentials bool) *unstructured.Unstructured {
	ref := map[string]any{"branch": cfg.GitBranch}
	if cfg.FromRegistry() {
		ref = map[string]any{"tag": cfg.OCITag}
	}
	spec := map[string]any{"interval": "1m0s", "url": cfg.GitURL, "ref": ref}
	if credentials {
		spec["secretRef"] = map[string]any{"name": secretName(cfg)}
	}
	return object(SourceKind(cfg), spec)
}

// Kustomization is the object by which the kustomize-controller applies the configured folder.
func Kustomization(cfg config.Config) *unstructured.Unstructured {
	return object(KustomizationKind, map[string]any{"interval": "10m0s", "path": "./" + path.Clean(cfg.GitFolder()),
		"prune": true, "sourceRef": map[string]any{"kind": SourceKind(cfg).Kind, "name": Name}})
}

func object(kind schema.GroupVersionKind, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: treeObject(kind, Name, spec)}
}
