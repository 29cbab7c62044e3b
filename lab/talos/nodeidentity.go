package talos

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/pki"
)

const (
	// nodeClient is the name of the files, without extension, with the kubelet's client certificate and key.
	nodeClient = "kubelet-client"
	// handshakeTime bounds a TLS handshake with a kube-apiserver.
	handshakeTime = 10 * time.Second
)

// nodeIdentity is whom a server's kubelet trusts, and what it shows to kube-apiservers. A real kubelet is restarted
// with other files when the authorities change, and its Pods run on. Here the Pods' processes would end with the
// kubelet, so that its connections follow instead.
type nodeIdentity struct {
	dir        string // of the kubelet's certificates
	user       string
	serverName string // to verify; empty: the address that is dialled
	dialer     *connrotation.Dialer

	mu      sync.Mutex
	trusted authority
	client  tls.Certificate // of the Node
	admin   tls.Certificate // of Talos, for labels that a kubelet may not set
}

// newNodeIdentity returns the identity of the kubelet's folder or, where that has none that is still accepted, a new
// one. It waits for an authority that signs.
func (y *system) newNodeIdentity(ctx context.Context, serverName string) (*nodeIdentity, error) {
	n := &nodeIdentity{
		dir: y.server.path("var", "lib", "kubelet", "pki"), user: "system:node:" + y.hostname, serverName: serverName,
		dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second,
			KeepAlive: 30 * time.Second}).DialContext),
	}
	ca, err := awaitSigner(ctx, y.clusterSigner)
	if err != nil {
		return nil, err
	}
	authorities, _ := y.authorities.get()
	n.trusted = authorities.cluster
	if err := n.load(); err != nil {
		return nil, err
	}
	_, err = n.renew(ca)
	return n, err
}

// load reads the client certificate of an earlier boot.
func (n *nodeIdentity) load() error {
	cert, err := os.ReadFile(n.file(".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	key, keyErr := os.ReadFile(n.file(".key"))
	if err := errors.Join(err, keyErr); err != nil {
		return fmt.Errorf("read the kubelet's client certificate: %w", err)
	}
	n.client, err = pki.Pair{Cert: cert, Key: key}.TLS()
	return err
}

// trust replaces the authorities that are trusted; false: they are the same. Every connection ends, because what it was
// opened with may not be accepted any more.
func (n *nodeIdentity) trust(a authority) bool {
	n.mu.Lock()
	same := bytes.Equal(a.accepted, n.trusted.accepted)
	n.trusted = a
	n.mu.Unlock()
	if !same {
		n.dialer.CloseAll()
	}
	return !same
}

// accepted says whether a certificate is one that kube-apiservers with the same authorities accept. The caller holds
// n.mu.
func (n *nodeIdentity) accepted(c tls.Certificate) bool {
	return c.Leaf != nil && n.trusted.accepts(c.Leaf)
}

// complete says whether all certificates are accepted.
func (n *nodeIdentity) complete() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted(n.client) && n.accepted(n.admin)
}

// renew has ca issue the certificates that are not accepted; client says whether the Node's is among them. With a
// Node's certificate that is not accepted any more everything in the folder goes, also the serving certificate, as with
// Talos.
func (n *nodeIdentity) renew(ca *pki.CA) (client bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	issue := func(user, group string) (pki.Pair, tls.Certificate, error) {
		pair, err := ca.Issue(pki.Request{CommonName: user, Organizations: []string{group}})
		if err != nil {
			return pair, tls.Certificate{}, err
		}
		cert, err := pair.TLS()
		return pair, cert, err
	}
	if !n.accepted(n.admin) {
		if _, n.admin, err = issue("system:talos:node-labels", "system:masters"); err != nil {
			return false, err
		}
	}
	if n.accepted(n.client) {
		return false, nil
	}
	if n.client.Leaf != nil {
		if err := os.RemoveAll(n.dir); err != nil {
			return false, fmt.Errorf("remove the kubelet's certificates: %w", err)
		}
	}
	pair, cert, err := issue(n.user, "system:nodes")
	if err != nil {
		return false, err
	}
	if _, _, err := pair.Write(n.dir, nodeClient); err != nil {
		return false, fmt.Errorf("store the kubelet's client certificate: %w", err)
	}
	n.client = cert
	return true, nil
}

func (n *nodeIdentity) file(extension string) string { return n.dir + "/" + nodeClient + extension }

// authority returns the certificates, in PEM, that are trusted.
func (n *nodeIdentity) authority() ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trusted.accepted, nil
}

// configs are the access to a kube-apiserver as the Node, and as Talos. Each connection that is opened has the trust
// and the certificate of its moment.
func (n *nodeIdentity) configs(server string) (client, admin *rest.Config) {
	config := func(certificate *tls.Certificate) *rest.Config {
		return &rest.Config{Host: server, Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return n.dialTLS(ctx, network, addr, certificate)
			},
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 25, // as client-go has it
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		}}
	}
	return config(&n.client), config(&n.admin)
}

func (n *nodeIdentity) dialTLS(
	ctx context.Context, network, addr string, certificate *tls.Certificate,
) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conn, err := n.dialer.DialContext(ctx, network, addr) // from here on trust closes it
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: n.trusted.pool, ServerName: cmp.Or(n.serverName, host),
		Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2", "http/1.1"},
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// keepNodeIdentity has a kubelet's identity follow the authorities until ctx is done.
func (y *system) keepNodeIdentity(ctx context.Context, n *nodeIdentity, k *kubelet.Kubelet) {
	for {
		authorities, ownChanged := y.authorities.get()
		ca, _, othersChanged := y.clusterSigner()
		if n.trust(authorities.cluster) {
			y.services.set(serviceKubelet, stateStopping, "Stopping: the cluster's authorities have changed")
			y.services.set(serviceKubelet, statePreparing, "Running pre state")
			y.services.run(serviceKubelet, "Started")
		}
		if n.complete() {
			othersChanged = nil
		} else if ca != nil {
			renewed, err := n.renew(ca)
			if err != nil {
				y.log.Error("the kubelet has no certificate that is accepted", "reason", err)
			} else if renewed {
				k.RenewServingCertificate()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ownChanged:
		case <-othersChanged:
		}
	}
}
