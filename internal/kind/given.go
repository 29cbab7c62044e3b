package kind

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// Given is a management cluster that is there already: behind a kubeconfig of the operator's, or the one that this
// process runs in.
type Given struct {
	what  string // "the management cluster of /some/kubeconfig"
	open  func() ([]byte, error)
	ready func(ctx context.Context, kubeconfig []byte) error
}

// behind is the cluster behind a kubeconfig.
func behind(path string) Given {
	return Given{what: "the management cluster of " + path, ready: answers, open: func() ([]byte, error) {
		kubeconfig, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read MANAGEMENT_KUBECONFIG: %w", err)
		}
		return kubeconfig, nil
	}}
}

// around is the cluster that this process runs in.
func around(p Pod) Given {
	return Given{what: "the cluster that this Pod runs in as management cluster", ready: answers, open: p.Kubeconfig}
}

// Name implements platform.ManagementProvider.
func (g Given) Name() string { return "kubeconfig" }

// Given implements platform.GivenManagement.
func (g Given) Given() bool { return true }

// Ensure returns the kubeconfig of the cluster.
func (g Given) Ensure(ctx context.Context, _ string, say flow.Say) ([]byte, error) {
	say("using %s", g.what)
	kubeconfig, err := g.open()
	if err != nil {
		return nil, err
	}
	return kubeconfig, g.ready(ctx, kubeconfig)
}

// Exists can say yes or that it does not know: a kubeconfig that leads nowhere is no proof that the cluster is gone.
func (g Given) Exists(ctx context.Context, _ string) (bool, error) {
	kubeconfig, err := g.open()
	if err != nil {
		return false, err
	}
	err = g.ready(ctx, kubeconfig)
	return err == nil, err
}

// Delete refuses: what was given is not ours to delete.
func (g Given) Delete(context.Context, string) error {
	return fmt.Errorf("%s: %w", g.what, steps.ErrNotOurs)
}

// serviceAccount is the folder in which Kubernetes gives a Pod its service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Pod is what a Pod knows of the API server of its cluster.
type Pod struct {
	Host, Port string // of the API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT
	Folder     string // with the files token and ca.crt
}

// ThisPod is the Pod that this process runs in.
func ThisPod() Pod {
	return Pod{Host: os.Getenv("KUBERNETES_SERVICE_HOST"), Port: os.Getenv("KUBERNETES_SERVICE_PORT"),
		Folder: serviceAccount}
}

// token is the path of the service account's token, which the kubelet replaces before it expires.
func (p Pod) token() string { return filepath.Join(p.Folder, "token") }

// Check refuses a process that does not run in a Pod with a service account.
func (p Pod) Check() error {
	_, err := os.Stat(p.token())
	if p.Host != "" && p.Port != "" && err == nil {
		return nil
	}
	return usage.Errorf("MANAGEMENT=%s needs a kubeconfig, or a Pod of that cluster to run in: name the kubeconfig in "+
		"MANAGEMENT_KUBECONFIG (managementKubeconfig), or run in a Pod with a service account token (%s)",
		config.ManagementExisting, p.token())
}

// Kubeconfig opens the cluster of the Pod. It holds no token, but the path of its file, which clients read again.
func (p Pod) Kubeconfig() ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(p.Folder, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of the cluster that this Pod runs in: %w", err)
	}
	const name = "in-cluster"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(p.Host, p.Port),
		CertificateAuthorityData: authority}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: p.token()}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig of the cluster that this Pod runs in: %w", err)
	}
	return kubeconfig, nil
}
