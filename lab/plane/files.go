package plane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// files are the paths of the files that the programs read.
type files struct {
	ca, caKey                             string // of the authority that issues certificates
	accepted                              string // the authorities that are trusted
	serverCert, serverKey                 string
	etcdCA, etcdCert, etcdKey             string
	aggregatorCA, aggregatorCert, aggrKey string
	kubeletCert, kubeletKey               string
	serviceAccountKey                     string
	audit, egress, encryption             string // empty: not used
	controllerManager, scheduler          component
}

// component is the client identity of a program at the kube-apiserver, and its serving certificate.
type component struct {
	kubeconfig, cert, key string
}

// write writes every file. Certificates are new at each start, signed by the same authorities.
func (c Config) write() (f files, err error) {
	path := func(name string) string { return filepath.Join(c.Dir, name) }
	w := &writer{}
	f.ca, f.caKey = w.pair(c.Dir, "ca", c.CA.Pair(), nil)
	f.accepted = w.file(path("accepted-cas.crt"), c.accepted())
	server, err := c.CA.Issue(pki.Request{CommonName: "kube-apiserver", Hosts: append([]string{
		c.Address, "127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}, c.SANs...)})
	f.serverCert, f.serverKey = w.pair(c.Dir, "apiserver", server, err)
	f.etcdCA = w.file(path("etcd-ca.crt"), c.Etcd.CA)
	f.etcdCert, f.etcdKey = w.pair(c.Dir, "etcd-client", c.Etcd.Pair, nil)
	f.aggregatorCA = w.file(path("front-proxy-ca.crt"), c.Aggregator.Cert())
	proxy, err := c.Aggregator.Issue(pki.Request{CommonName: frontProxy})
	f.aggregatorCert, f.aggrKey = w.pair(c.Dir, "front-proxy-client", proxy, err)
	kubelets, err := c.CA.Issue(pki.Request{CommonName: "apiserver-kubelet-client",
		Organizations: []string{"system:masters"}})
	f.kubeletCert, f.kubeletKey = w.pair(c.Dir, "apiserver-kubelet-client", kubelets, err)
	f.serviceAccountKey = w.file(path("sa.key"), c.ServiceAccountKey)
	f.controllerManager = w.component(c, "kube-controller-manager")
	f.scheduler = w.component(c, "kube-scheduler")
	if c.AuditLog != "" {
		f.audit = w.file(path("audit-policy.yaml"), []byte(auditPolicy))
	}
	if c.EgressSocket != "" {
		f.egress = w.file(path("egress.yaml"), fmt.Appendf(nil, egressConfig, c.EgressSocket))
	}
	if len(c.EncryptionConfig) > 0 {
		f.encryption = w.file(path("encryption.yaml"), c.EncryptionConfig)
	}
	return f, w.err
}

// accepted are the authorities, in PEM, that are trusted.
func (c Config) accepted() []byte {
	if len(c.Accepted) > 0 {
		return c.Accepted
	}
	return c.CA.Cert()
}

// writer writes until something fails.
type writer struct{ err error }

func (w *writer) file(path string, b []byte) string {
	if w.err == nil {
		w.err = pki.WriteFile(path, b)
	}
	return path
}

func (w *writer) pair(dir, name string, p pki.Pair, err error) (certFile, keyFile string) {
	if w.err = errors.Join(w.err, err); w.err == nil {
		certFile, keyFile, w.err = p.Write(dir, name)
	}
	return certFile, keyFile
}

func (w *writer) component(c Config, name string) (f component) {
	pair, err := c.CA.Issue(pki.Request{CommonName: "system:" + name, Hosts: []string{c.Address}})
	f.cert, f.key = w.pair(c.Dir, name, pair, err)
	if w.err != nil {
		return f
	}
	config, err := kubeconfig(c.Cluster, Endpoint(c.Address, c.Port), "system:"+name, c.accepted(), pair)
	w.err = err
	f.kubeconfig = w.file(filepath.Join(c.Dir, name+".kubeconfig"), config)
	return f
}

// Kubeconfig returns a kubeconfig for the kube-apiserver's own address with a new certificate for user in groups.
func (p *Plane) Kubeconfig(user string, groups ...string) ([]byte, error) {
	pair, err := p.cfg.CA.Issue(pki.Request{CommonName: user, Organizations: groups})
	if err != nil {
		return nil, err
	}
	return kubeconfig(p.cfg.Cluster, p.Endpoint(), user, p.cfg.accepted(), pair)
}

// AdminKubeconfig returns the administrator's kubeconfig. It is created once and kept in Dir, so that every call
// returns the same one, until the authorities are others.
func (p *Plane) AdminKubeconfig() ([]byte, error) {
	path := filepath.Join(p.cfg.Dir, "admin.kubeconfig")
	b, err := os.ReadFile(path)
	switch {
	case err == nil && p.current(b):
		return b, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if b, err = p.Kubeconfig("kubernetes-admin", "system:masters"); err != nil {
		return nil, err
	}
	return b, pki.WriteFile(path, b)
}

// current says whether a kubeconfig trusts the present authorities, and has a certificate of the one that issues them.
func (p *Plane) current(kubeconfig []byte) bool {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return false
	}
	pair, err := pki.Pair{Cert: config.CertData, Key: config.KeyData}.TLS()
	return err == nil && bytes.Equal(config.CAData, p.cfg.accepted()) &&
		pair.Leaf.CheckSignatureFrom(p.cfg.CA.Certificate()) == nil
}

func kubeconfig(cluster, server, user string, ca []byte, pair pki.Pair) ([]byte, error) {
	context := user + "@" + cluster
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	c.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = context
	b, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", context, err)
	}
	return b, nil
}
