package steps

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// TokenSecret identifies the Secret with the Hetzner token. It does not hold the token itself.
type TokenSecret struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// TokenSecret adds the step secret to a graph: the management cluster has the Hetzner token.
func (s *Set) TokenSecret(g *flow.Graph, management *flow.Step[Management]) *flow.Step[TokenSecret] {
	step := newTokenSecretStep(s)
	return flow.Add1(g, "secret", step.run, management).
		Doc("the Hetzner token for Cluster API, in the management cluster").
		Verify(step.verify).Deadline(overhead).Waits(waitTaken)
}

// tokenSecretStep runs and verifies the step secret.
type tokenSecretStep struct {
	cfg   config.Config
	tools platform.Tools
}

func newTokenSecretStep(s *Set) tokenSecretStep {
	return tokenSecretStep{cfg: s.cfg, tools: s.tools}
}

// run writes the token where manifests/cluster.yaml tells CAPH to look. The label makes it go along when
// the cluster is moved into itself, also before CAPH has put its own mark on it.
func (t tokenSecretStep) run(ctx context.Context, say flow.Say, m Management) (TokenSecret, error) {
	mgmt, err := connect.Cluster(t.tools, m.Kubeconfig)
	if err != nil {
		return TokenSecret{}, err
	}
	if err := refuseTokenOfOtherProject(ctx, t.cfg, t.tools, mgmt); err != nil {
		return TokenSecret{}, err
	}
	say("writing Secret %s/%s", config.Namespace, config.TokenSecretName)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.TokenSecretName, Labels: map[string]string{capi.MoveLabel: ""}},
		Data:       map[string][]byte{config.TokenSecretKey: []byte(t.tools.Token.Reveal())},
	}
	uid, err := applySecret(ctx, say, mgmt, secret)
	return TokenSecret{Namespace: config.Namespace, Name: config.TokenSecretName, UID: uid}, err
}

// verify compares the token itself, so that a new one reaches the cluster at the next run.
func (t tokenSecretStep) verify(ctx context.Context, was TokenSecret) flow.Verdict {
	mgmt, err := connect.Cluster(t.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	return verifySecret(ctx, mgmt, was, map[string]string{config.TokenSecretKey: t.tools.Token.Reveal()})
}

// verifySecret compares a Secret with what it was made of. No value is ever part of the answer.
func verifySecret(ctx context.Context, c *kube.Cluster, was TokenSecret, want map[string]string) flow.Verdict {
	is := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: was.Namespace, Name: was.Name}, is); err != nil {
		return verdictFromError(fmt.Errorf("get Secret %s/%s: %w", was.Namespace, was.Name, err))
	}
	if string(is.UID) != was.UID {
		return flow.Gone("Secret %s/%s is another one than the recorded", was.Namespace, was.Name)
	}
	for key, value := range want {
		if string(is.Data[key]) != value {
			return flow.Gone("Secret %s/%s holds another value of %s than today's", was.Namespace, was.Name, key)
		}
	}
	return flow.Holds()
}

// takenWithin is how long an API server may be silent or unwell before a write fails: while control plane machines
// join, etcd elects leaders, and an API server behind the load balancer starts.
const takenWithin = time.Minute

// applySecret writes a Secret and gives its UID.
func applySecret(ctx context.Context, say flow.Say, c *kube.Cluster, secret *corev1.Secret) (string, error) {
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return "", fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	o := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	if err := applyTaken(ctx, say, c, o); err != nil {
		return "", err
	}
	return string(o.GetUID()), nil
}

// applyTaken applies an object, waiting while the API server is silent or unwell.
func applyTaken(ctx context.Context, say flow.Say, c *kube.Cluster, o *unstructured.Unstructured) error {
	return wait.Wait{What: "the API server to take " + kube.Describe(o), Within: takenWithin}.Until(ctx, say, func(ctx context.Context) (string, error) {
		err := c.Apply(ctx, o)
		if err != nil && !kube.Unwell(err) {
			return "", wait.Final(err)
		}
		return "", err
	})
}
