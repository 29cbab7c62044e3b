package kube

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// podAccount is where a kubelet puts the credentials of a Pod's ServiceAccount.
const podAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// PodNamespace is the namespace of the Pod in which the process runs; empty: it runs in none.
func PodNamespace() string {
	data, err := os.ReadFile(filepath.Join(podAccount, "namespace"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// ErrNoPod is that the process runs in no Pod, or in one without a ServiceAccount's token.
var ErrNoPod = errors.New("this is no Pod with the token of a ServiceAccount")

// PodKubeconfig is a kubeconfig of the ServiceAccount of the Pod in which the process runs. It names the file of the
// token, which the kubelet renews, and has none in it.
func PodKubeconfig(environment map[string]string) ([]byte, error) {
	return podKubeconfig(environment, podAccount)
}

func podKubeconfig(environment map[string]string, dir string) ([]byte, error) {
	host, port := environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
	if host == "" || port == "" {
		return nil, fmt.Errorf("%w: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set", ErrNoPod)
	}
	token := filepath.Join(dir, "token")
	_, err := os.Stat(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPod, err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPod, err)
	}
	const name = "pod"
	config := clientcmdapi.NewConfig()
	config.CurrentContext = name
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(host, port),
		CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: token}
	return clientcmd.Write(*config)
}
