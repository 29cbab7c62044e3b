package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// syncEvery is how often volumes are compared with their sources even where nothing seemed to change, as kubelets
// do: the downward API has no other signal.
const syncEvery = 60 * time.Second

// identityVolume is the folder with the kubeconfig of the Pod's service account. No volume of a Pod can have this name.
const identityVolume = "..identity"

// references returns every Secret and ConfigMap that the Pod's volumes and environments name.
func (p *pod) references() []ref {
	set := map[ref]bool{}
	add := func(kind, name string) {
		if name != "" {
			set[ref{kind, p.namespace, name}] = true
		}
	}
	spec := p.seen().Spec
	for _, v := range spec.Volumes {
		switch {
		case v.Secret != nil:
			add(secretKind, v.Secret.SecretName)
		case v.ConfigMap != nil:
			add(configMapKind, v.ConfigMap.Name)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					add(secretKind, s.Secret.Name)
				}
				if s.ConfigMap != nil {
					add(configMapKind, s.ConfigMap.Name)
				}
			}
		}
	}
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil {
				add(secretKind, e.SecretRef.Name)
			}
			if e.ConfigMapRef != nil {
				add(configMapKind, e.ConfigMapRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if e.ValueFrom.SecretKeyRef != nil {
				add(secretKind, e.ValueFrom.SecretKeyRef.Name)
			}
			if e.ValueFrom.ConfigMapKeyRef != nil {
				add(configMapKind, e.ValueFrom.ConfigMapKeyRef.Name)
			}
		}
	}
	return slices.Collect(maps.Keys(set))
}

// filesOf returns a volume's files; nil for a kind that has none or that the lab only records (hostPath, persistent
// ones). Next is when a token among them is to be renewed; 0: never.
func (p *pod) filesOf(ctx context.Context, v corev1.Volume) (files map[string][]byte, next time.Duration, err error) {
	switch {
	case v.Secret != nil:
		files, err = p.objectFiles(secretKind, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		files, err = p.objectFiles(configMapKind, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		files, err = p.downwardFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		return p.projectedFiles(ctx, v.Projected.Sources)
	}
	return files, 0, err
}

func (p *pod) projectedFiles(
	ctx context.Context, sources []corev1.VolumeProjection,
) (files map[string][]byte, next time.Duration, err error) {
	files = map[string][]byte{}
	for _, s := range sources {
		var some map[string][]byte
		switch {
		case s.Secret != nil:
			some, err = p.objectFiles(secretKind, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
		case s.ConfigMap != nil:
			some, err = p.objectFiles(configMapKind, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
		case s.DownwardAPI != nil:
			some, err = p.downwardFiles(s.DownwardAPI.Items)
		case s.ServiceAccountToken != nil && p.mapped():
			var t token
			if t, err = p.token(ctx, tokenKeyOf(s.ServiceAccountToken)); err == nil {
				some = map[string][]byte{s.ServiceAccountToken.Path: []byte(t.value)}
				if wait := time.Until(t.renewAt); next == 0 || wait < next {
					next = wait
				}
			}
		}
		if err != nil {
			return nil, 0, err
		}
		maps.Copy(files, some)
	}
	return files, next, nil
}

// objectFiles are the chosen keys of a Secret or a ConfigMap under the chosen paths, all of them under their own names
// where none is chosen.
func (p *pod) objectFiles(kind, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	c, err := p.read(kind, name, optional)
	if err != nil {
		return nil, err
	}
	data := merge(maps.Clone(c.binary), c.values)
	if len(items) == 0 {
		return data, nil
	}
	picked := map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !ptr.Deref(optional, false) {
			return nil, fmt.Errorf("references non-existent %s key: %s (%s)", kind, item.Key, name)
		}
		if ok {
			picked[path.Clean(item.Path)] = value
		}
	}
	return picked, nil
}

// read returns what a Secret or a ConfigMap holds: nothing where it is optional and does not exist.
func (p *pod) read(kind, name string, optional *bool) (content, error) {
	c, err := p.k.objects.get(ref{kind, p.namespace, name})
	switch {
	case err == nil:
		return *c, nil
	case !apierrors.IsNotFound(err):
		return content{}, fmt.Errorf("%w: %w", errAgain, err)
	case ptr.Deref(optional, false):
		return content{}, nil
	default:
		return content{}, fmt.Errorf("%s %q not found", kind, name)
	}
}

func (p *pod) downwardFiles(items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	var errs []error
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = p.field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = p.resourceField(item.ResourceFieldRef, nil)
		}
		errs = append(errs, err)
		files[path.Clean(item.Path)] = []byte(value)
	}
	return files, errors.Join(errs...)
}

// hasFolder says whether the lab has a folder with the volume's files.
func hasFolder(v corev1.Volume) bool {
	return v.Secret != nil || v.ConfigMap != nil || v.Projected != nil || v.DownwardAPI != nil || v.EmptyDir != nil
}

// localDir returns the folder behind a path in a container.
func (p *pod) localDir(spec corev1.Container, containerPath string) (string, error) {
	best, rest := corev1.VolumeMount{}, ""
	for _, m := range spec.VolumeMounts {
		at, want := path.Clean(m.MountPath), path.Clean(containerPath)
		if want != at && !strings.HasPrefix(want, strings.TrimSuffix(at, "/")+"/") {
			continue
		}
		if best.Name == "" || len(at) > len(path.Clean(best.MountPath)) {
			best, rest = m, strings.TrimPrefix(want, at)
		}
	}
	if best.Name == "" {
		return "", fmt.Errorf("container %s mounts nothing at %s", spec.Name, containerPath)
	}
	i := slices.IndexFunc(p.seen().Spec.Volumes, func(v corev1.Volume) bool { return v.Name == best.Name })
	if i < 0 {
		return "", fmt.Errorf("container %s mounts volume %q, which the Pod does not have", spec.Name, best.Name)
	}
	v := p.seen().Spec.Volumes[i]
	if !hasFolder(v) {
		return "", fmt.Errorf("volume %q at %s is of a kind that the lab has no folder for", v.Name, containerPath)
	}
	if best.SubPathExpr != "" {
		return "", fmt.Errorf("volume %q at %s has a subPathExpr, which the lab does not know", v.Name, containerPath)
	}
	within := filepath.FromSlash(path.Join("./", path.Join("/", best.SubPath, rest)))
	if v.EmptyDir != nil {
		if err := makeWithin(p.volumeDir(v.Name), within); err != nil {
			return "", fmt.Errorf("create the folder of volume %q: %w", v.Name, err)
		}
	}
	return filepath.Join(p.volumeDir(v.Name), within), nil
}

// makeWithin creates a folder below a volume's. A symbolic link of a container does not lead out of the volume.
func makeWithin(dir, within string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	volume, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer volume.Close()
	return volume.MkdirAll(within, 0o700)
}
