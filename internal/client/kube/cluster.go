// Package kube speaks to one Kubernetes cluster behind a kubeconfig: apply, get, watch, readiness, Helm releases.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager owns the fields that Apply writes.
const FieldManager = "slipway"

const userAgent = "slipway"

var secretGVK = corev1.SchemeGroupVersion.WithKind("Secret")

// Cluster is one Kubernetes cluster. It reads and writes built-in objects by their Go types and all others as
// unstructured ones.
type Cluster struct {
	client.WithWatch
	config *rest.Config
	http   *http.Client // for paths that are not objects, such as /readyz
	plain  *rest.Config // config without a transport of its own: for connections that are no requests
}

// Connect makes a Cluster from a kubeconfig's current context. It does not speak to the cluster yet. A kubeconfig that
// could do anything but open a cluster with what it holds is refused, with a *kubeconfig.Error: it may come from a
// cluster's Secret, a state store or a backup. See ConnectTrusted.
func Connect(kubeconfig []byte) (*Cluster, error) { return (&Connections{}).Connect(kubeconfig) }

// ConnectTrusted is Connect by a kubeconfig that the operator named, or that this process made: it may run a program
// for its credentials, name files and a proxy, and leave out the authority.
func ConnectTrusted(kubeconfig []byte) (*Cluster, error) { return connect(kubeconfig, nil) }

func connect(data []byte, wrap transport.WrapperFunc) (*Cluster, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.UserAgent = userAgent
	config.QPS = -1 // no limit: steps do not wait for each other, and an API server with too much to do answers 429
	config.WarningHandler = rest.NoWarnings{}
	upgradable := rest.CopyConfig(config)
	expired := namesExpired(config) // before its certificate is in its transport alone
	if err := ownTransport(config); err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", config.Host, err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &boundedRetryAfter{next} })
	if expired != nil {
		config.Wrap(expired)
	}
	if wrap != nil {
		config.Wrap(wrap)
		upgradable.Wrap(wrap)
	}

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme,
		coordinationv1.AddToScheme,
		policyv1.AddToScheme, admissionv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", config.Host, err)
	}
	mapper, err := newMapper(config, plain)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", config.Host, err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, HTTPClient: plain, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", config.Host, err)
	}
	return &Cluster{WithWatch: c, config: config, http: plain, plain: upgradable}, nil
}

// Host is the API server's address, as the kubeconfig has it.
func (c *Cluster) Host() string { return c.config.Host }

// get asks for a path that is no object.
func (c *Cluster) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.config.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}

// maxReadyz is far above the some forty lines that /readyz has.
const maxReadyz = 64 << 10

// Ready asks the API server's /readyz. Its error names the checks that fail, or why there was no answer.
func (c *Cluster) Ready(ctx context.Context) error {
	resp, err := c.get(ctx, "/readyz")
	if err != nil {
		if transport := (*url.Error)(nil); errors.As(err, &transport) {
			return transport.Err
		}
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReadyz))
	if err != nil || resp.StatusCode == http.StatusOK {
		return err
	}
	var failing []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failing = append(failing, name)
		}
	}
	if len(failing) == 0 {
		return fmt.Errorf("/readyz says %s", resp.Status)
	}
	return fmt.Errorf("not ready: %s", strings.Join(failing, ", "))
}

// Version asks which Kubernetes the API server is: "v1.33.7".
func (c *Cluster) Version(ctx context.Context) (string, error) {
	resp, err := c.get(ctx, "/version")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("/version says %s", resp.Status)
	}
	var is version.Info
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReadyz)).Decode(&is); err != nil {
		return "", fmt.Errorf("read /version: %w", err)
	}
	return is.GitVersion, nil
}

// UID identifies the cluster: the UID of its namespace kube-system. Another cluster at the same address has another.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("get namespace %s of %s: %w", metav1.NamespaceSystem, c.Host(), err)
	}
	return string(ns.UID), nil
}

// Apply writes objects by server-side apply, one after another, as the owner of what they contain. What another
// manager owns is taken over: the files that people edit are the intent. Each object becomes what the cluster answers.
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for _, o := range objects {
		err := c.served(ctx, o, func() error {
			return c.WithWatch.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership,
				client.FieldOwner(FieldManager))
		})
		if err != nil {
			return fmt.Errorf("apply %s: %w", Describe(o), err)
		}
	}
	return nil
}

// WebhookDown reports whether err is the API server's complaint that it could not reach an admission webhook, or could
// not trust it.
func WebhookDown(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsInternalError(err) &&
		(strings.Contains(status.Status().Message, "failed calling webhook") ||
			strings.Contains(status.Status().Message, "failed to call webhook"))
}

// Unwell reports whether err says that an API server, or a webhook behind it, did not take a request that it may take
// in a moment: it was silent, starts, has no etcd leader just now, or has too much to do.
func Unwell(err error) bool {
	return Transient(err) || conversionDown(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err)
}

// conversionDown reports whether err is the API server's complaint that a conversion webhook did not convert what is
// stored, as while its Pod moves to another node. The complaint has no reason that would tell it from others.
func conversionDown(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError &&
		strings.Contains(status.Status().Message, conversionFailed)
}

// answered reports whether err is a refusal by someone who read the request, a webhook or the API server. A webhook
// that failed over what it read refuses with any code.
func answered(err error) bool {
	if errors.As(err, new(*ExpiredError)) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	is := status.Status()
	return is.Code >= 400 && is.Code < 500 && !apierrors.IsTooManyRequests(err) ||
		strings.Contains(is.Message, "denied the request")
}

// Describe names an object for people: "TalosControlPlane default/k8s-control-plane".
func Describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
