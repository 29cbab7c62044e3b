package objectstore

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// What the Secrets of a store are called and marked with.
const (
	secretPrefix  = "slipway."
	secretLabel   = "slipway.dev/store"
	secretContent = "content"
	secretName    = "slipway.dev/object" // annotation: the object's name
	secretType    = corev1.SecretType("slipway.dev/object")
	// mostSecret is what a Secret can hold (corev1.MaxSecretSize), less a part for its metadata (bytes).
	mostSecret = corev1.MaxSecretSize - 16<<10
)

type secretStore struct {
	client    typed.SecretInterface
	namespace string
}

// Secrets is a Store in a namespace of a cluster, with a Secret for each object. An object's version is the Secret's
// resourceVersion. Its client needs to get, list, create, update and delete Secrets there.
func Secrets(client typed.SecretInterface, namespace string) Store {
	return checked{secretStore{client, namespace}, mostSecret}
}

func (s secretStore) String() string { return "k8s://" + s.namespace }

func (s secretStore) failed(do, name string, err error) error {
	secret := "Secret " + s.namespace + "/" + nameOfSecret(name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w", do, secret, fs.ErrNotExist)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s %s: %w", do, secret, ErrConflict)
	}
	return fmt.Errorf("%s %s: %w", do, secret, err)
}

// nameOfSecret is the Secret of an object. Two objects may have one Secret; the annotation tells whose it is.
func nameOfSecret(name string) string { return secretPrefix + strings.ReplaceAll(name, "/", ".") }

func (s secretStore) Get(ctx context.Context, name string) ([]byte, string, error) {
	secret, err := s.client.Get(ctx, nameOfSecret(name), metav1.GetOptions{})
	if err != nil {
		return nil, None, s.failed("read", name, err)
	}
	if is := secret.Annotations[secretName]; is != name {
		return nil, None, fmt.Errorf("Secret %s/%s holds the object %q, not %q: use another namespace", s.namespace,
			secret.Name, is, name)
	}
	return secret.Data[secretContent], secret.ResourceVersion, nil
}

func (s secretStore) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: nameOfSecret(name), ResourceVersion: version,
			Labels:      map[string]string{secretLabel: "state", "app.kubernetes.io/managed-by": "slipway"},
			Annotations: map[string]string{secretName: name}},
		Type: secretType, Data: map[string][]byte{secretContent: data},
	}
	write := func() (*corev1.Secret, error) { return s.client.Update(ctx, secret, metav1.UpdateOptions{}) }
	if version == None {
		write = func() (*corev1.Secret, error) { return s.client.Create(ctx, secret, metav1.CreateOptions{}) }
	}
	written, err := write()
	switch {
	case apierrors.IsNotFound(err) && version != None: // to be replaced, and gone
		return None, fmt.Errorf("write Secret %s/%s: %w", s.namespace, secret.Name, ErrConflict)
	case apierrors.IsNotFound(err):
		return None, fmt.Errorf("write Secret %s/%s: %w (create the namespace first: Slipway creates none for its state)",
			s.namespace, secret.Name, err)
	}
	if err != nil {
		return None, s.failed("write", name, err)
	}
	return written.ResourceVersion, nil
}

func (s secretStore) List(ctx context.Context, prefix string) ([]string, error) {
	secrets, err := s.client.List(ctx, metav1.ListOptions{LabelSelector: secretLabel + "=state"})
	if err != nil {
		return nil, fmt.Errorf("list Secrets in namespace %s: %w", s.namespace, err)
	}
	var names []string
	for _, secret := range secrets.Items {
		if name := secret.Annotations[secretName]; strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s secretStore) Delete(ctx context.Context, name string) error {
	err := s.client.Delete(ctx, nameOfSecret(name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return s.failed("delete", name, err)
	}
	return nil
}
