package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is the validity of a token for a kubeconfig. It is that of the tokens which the ServiceAccount admission
// plugin projects into Pods, so that one token serves both.
const tokenSeconds = int64(3607)

// projectedSeconds is the API's default for a projected token.
const projectedSeconds = int64(3600)

// tokenKey identifies a token of a Pod.
type tokenKey struct {
	audience string // empty: the API server
	seconds  int64
}

type token struct {
	value   string
	renewAt time.Time
}

func tokenKeyOf(source *corev1.ServiceAccountTokenProjection) tokenKey {
	key := tokenKey{source.Audience, projectedSeconds}
	if source.ExpirationSeconds != nil {
		key.seconds = *source.ExpirationSeconds
	}
	return key
}

// serviceAccount names the service account that a Pod runs as.
func serviceAccount(api *corev1.Pod) string {
	if api.Spec.ServiceAccountName == "" { // only where the ServiceAccount admission plugin is off
		return "default"
	}
	return api.Spec.ServiceAccountName
}

// hasIdentity says whether the Pod's processes get a kubeconfig: not if the Pod disables the token.
func (p *pod) hasIdentity() bool {
	automount := p.seen().Spec.AutomountServiceAccountToken
	return automount == nil || *automount
}

// token returns a token of the Pod's service account that is bound to the Pod. It is renewed after four fifths of its
// validity.
func (p *pod) token(ctx context.Context, key tokenKey) (token, error) {
	p.mu.Lock()
	t, ok := p.tokens[key]
	p.mu.Unlock()
	if ok && time.Now().Before(t.renewAt) {
		return t, nil
	}
	api := p.seen()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: api.Name,
			UID: api.UID},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	asked := time.Now()
	answer, err := p.k.client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, serviceAccount(api), request,
		metav1.CreateOptions{})
	if err != nil {
		return token{}, fmt.Errorf("%w: failed to fetch token: %w", errAgain, err)
	}
	life := answer.Status.ExpirationTimestamp.Sub(asked)
	t = token{value: answer.Status.Token, renewAt: asked.Add(life * 4 / 5)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens[key] = t
	return t, nil
}

// identity returns the files of the folder with which the Pod's processes reach the API server. The kubeconfig refers
// to the token as a file, which client libraries read again from time to time, and to the authority as a file, as the
// configuration of a real Pod does: Cluster API, when it manages the cluster that it runs in, copies only the file's
// name.
func (p *pod) identity(ctx context.Context) (map[string][]byte, time.Duration, error) {
	t, err := p.token(ctx, tokenKey{seconds: tokenSeconds})
	if err != nil {
		return nil, 0, err
	}
	authority, err := p.authority()
	if err != nil {
		return nil, 0, fmt.Errorf("read the API server's certificate authority: %w", err)
	}
	const name = "lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: p.k.cfg.PodServer,
		CertificateAuthority: filepath.Join(p.volumeDir(identityVolume), "ca.crt")}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(p.volumeDir(identityVolume), "token")}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: p.namespace}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, 0, fmt.Errorf("encode it: %w", err)
	}
	return map[string][]byte{"kubeconfig": kubeconfig, "token": []byte(t.value), "ca.crt": authority},
		time.Until(t.renewAt), nil
}

// rootCA is the ConfigMap of every namespace with the authority that Pods verify the API server with.
const rootCA = "kube-root-ca.crt"

// authority returns the authority, in PEM, with which the Pod's processes verify the API server: that of the ConfigMap
// which the Pod mounts with its token, and, where it mounts none, the kubelet's: a node may read no other ConfigMaps
// than those of its Pods.
func (p *pod) authority() ([]byte, error) {
	if !slices.Contains(p.references(), ref{configMapKind, p.namespace, rootCA}) {
		return p.k.cfg.Accepted()
	}
	c, err := p.read(configMapKind, rootCA, nil)
	return c.values["ca.crt"], err
}

func (p *pod) kubeconfig() string { return filepath.Join(p.volumeDir(identityVolume), "kubeconfig") }
