package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/lab/pki"
)

const (
	// Port is the port on which a kube-apiserver expects a Node's kubelet. In a lab it connects through its egress proxy:
	// see Registry.
	Port = 10250
	// serverHeaders bounds how long a request may take to arrive.
	serverHeaders = 10 * time.Second
	// mastersGroup is that of a kube-apiserver's client certificate towards kubelets.
	mastersGroup = "system:masters"
)

// serveAPI serves the kubelet API until ctx is done. The lab implements the logs and the forwarding of ports.
func (k *Kubelet) serveAPI(ctx context.Context) {
	if err := k.tryServeAPI(ctx); err != nil && ctx.Err() == nil {
		k.log.Error("the kubelet's API is not served: the logs of its Pods cannot be read", "reason", err)
	}
}

func (k *Kubelet) tryServeAPI(ctx context.Context) error {
	certificate, err := k.servingCertificate()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hosts := []string{k.cfg.Node, k.cfg.InternalIP, k.cfg.ExternalIP}
	k.cfg.Registry.setKubelet(k.cfg.Cluster, hosts, l.Addr().String())
	defer k.cfg.Registry.unsetKubelet(k.cfg.Cluster, hosts, l.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.serveForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", k.serveForward)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("the lab's kubelet has no %s: it serves logs and forwards ports, and nothing else", r.URL.Path),
			http.StatusNotImplemented)
	})
	server := &http.Server{
		Handler: onlyMasters(mux), ReadHeaderTimeout: serverHeaders, ErrorLog: slog.NewLogLogger(k.log.Handler(),
			slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.serverTLS(certificate) }},
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serverTLS is the configuration for one more connection, whose client must have a certificate of an authority that is
// trusted now.
func (k *Kubelet) serverTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Config, error) {
	accepted, err := k.cfg.Accepted()
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the kubelet's clients: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(accepted)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: certificate,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		SessionTicketsDisabled: true, // a resumed session would skip the check against what is trusted now
	}, nil
}

// onlyMasters refuses all clients but those of a group that may do everything: the lab's kubelet does not use
// SubjectAccessReviews.
func onlyMasters(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := r.TLS.PeerCertificates[0].Subject; !slices.Contains(who.Organization, mastersGroup) {
			http.Error(w, fmt.Sprintf("%s is not in the group %s", who.CommonName, mastersGroup), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// servingCertificate is the kubelet's own, or, with ServingCSR, the issued one. Before that is issued, connections
// fail, as with a real kubelet.
func (k *Kubelet) servingCertificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if k.cfg.ServingCSR {
		files := filepath.Join(k.pkiDir(), servingName)
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(files+".crt", files+".key")
			if err != nil {
				return nil, fmt.Errorf("no serving certificate available for the kubelet: %w", err)
			}
			return &pair, nil
		}, nil
	}
	ca, err := pki.NewCA(k.cfg.Node + "-ca")
	if err != nil {
		return nil, err
	}
	issued, err := ca.Issue(pki.Request{CommonName: k.cfg.Node, Hosts: []string{k.cfg.Node, k.cfg.InternalIP}})
	if err != nil {
		return nil, err
	}
	pair, err := issued.TLS()
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

func (k *Kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := k.findContainer(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	log, err := c.logOf(options.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	if f, ok := w.(http.Flusher); ok && options.follow {
		f.Flush() // clients receive the headers before the first line
	}
	if err := log.send(r.Context(), w, options); err != nil && r.Context().Err() == nil {
		k.log.Warn("a log was not sent to its end", "pod", c.p.String(), "container", c.spec.Name, "reason", err)
	}
}

// findContainer finds a container of a Pod; if several Pods have the name, of the newest.
func (k *Kubelet) findContainer(namespace, name, containerName string) (*container, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found *pod
	for _, p := range k.pods {
		if p.namespace == namespace && p.name == name &&
			(found == nil || found.seen().CreationTimestamp.Before(&p.seen().CreationTimestamp)) {
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("pod %q not found on node %s", namespace+"/"+name, k.cfg.Node)
	}
	for _, c := range found.all() {
		if c.spec.Name == containerName {
			return c, nil
		}
	}
	return nil, fmt.Errorf("container %q not found in pod %q", containerName, found.String())
}

// lastLog is the log of the container's last run; nil before the first.
func (c *container) lastLog() *containerLog {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.log
}

// logOf is the log of the container's present run, or of its last one, or of the one before.
func (c *container) logOf(previous bool) (*containerLog, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	running := c.status.State.Running != nil
	switch {
	case c.program == nil:
		return nil, fmt.Errorf("container %q in pod %q is simulated: the lab has no program for image %s, so there is no log",
			c.spec.Name, c.p.name, c.spec.Image)
	case previous && !running && c.status.State.Waiting != nil && c.log != nil: // what waits has its last run behind it
		return c.log, nil
	case previous && c.logBefore == nil:
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", c.spec.Name, c.p.name)
	case previous:
		return c.logBefore, nil
	case c.log == nil:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", c.spec.Name, c.p.name,
			whyWaiting(c.status.State))
	}
	return c.log, nil
}

func whyWaiting(s corev1.ContainerState) string {
	if s.Waiting == nil {
		return "its log is not open yet"
	}
	return strings.TrimSpace(s.Waiting.Reason + " " + s.Waiting.Message)
}
