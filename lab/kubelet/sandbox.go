package kubelet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/lab/sandbox"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// metadataAddress is where a cloud's servers read their metadata.
var metadataAddress = netip.MustParseAddrPort("169.254.169.254:80")

// networkFrom creates a network of a Pod, or of the Node for Pods on the host's network, with what a server's Pods find
// at fixed addresses. stop ends all of it.
func (k *Kubelet) networkFrom(runtime *sandbox.Runtime, host bool) (_ *sandbox.Network, stop func(), err error) {
	network, err := runtime.NewNetwork()
	if err != nil {
		return nil, nil, err
	}
	closers := []io.Closer{network}
	stop = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			if err := closers[i].Close(); err != nil {
				k.log.Warn("a Pod's network was not closed", "reason", err)
			}
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if k.cfg.Metadata != nil {
		l, err := network.Listen(metadataAddress)
		if err != nil {
			return nil, nil, fmt.Errorf("serve the server's metadata at %s: %w", metadataAddress, err)
		}
		server := &http.Server{Handler: k.cfg.Metadata, ReadHeaderTimeout: serverHeaders,
			ErrorLog: slog.NewLogLogger(k.log.Handler(), slog.LevelDebug)}
		closers = append(closers, server)
		go func() { _ = server.Serve(l) }() // ended by Close
	}
	if local := k.cfg.LocalAPI; host && local.IsValid() {
		l, err := network.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), local.Port()))
		if err != nil {
			return nil, nil, fmt.Errorf("serve the Kubernetes API at port %d of the host's loopback: %w", local.Port(), err)
		}
		closers = append(closers, l)
		go tunnel.Serve(context.Background(), l, tunnel.To(local.String()))
	}
	return network, stop, nil
}

// joinNetwork gives the Pod its network, where the lab has networks for Pods. leave takes it away.
func (p *pod) joinNetwork(ctx context.Context) (leave func(), ok bool) {
	runtime := p.k.cfg.Sandboxes
	if runtime == nil || !p.mapped() {
		return func() {}, true
	}
	if p.seen().Spec.HostNetwork {
		p.setNetwork(p.k.host)
		return func() { p.setNetwork(nil) }, true
	}
	for retry := toAPI(); ; {
		network, stop, err := p.k.networkFrom(runtime, false)
		if err == nil {
			p.setNetwork(network)
			return func() {
				p.setNetwork(nil)
				stop()
			}, true
		}
		p.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %s", err)
		if !sleep(ctx, retry.next()) {
			return nil, false
		}
	}
}

func (p *pod) setNetwork(network *sandbox.Network) {
	p.mu.Lock()
	p.net = network
	p.mu.Unlock()
	key := portKey{p.k.cfg.Cluster, p.namespace, p.name, 0}
	if network == nil {
		p.k.cfg.Registry.unsetPod(key, string(p.uid))
		return
	}
	p.k.cfg.Registry.setPod(key, string(p.uid), network.Address())
}

// network is the Pod's own network; nil where Pods share the lab's.
func (p *pod) network() *sandbox.Network {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.net
}

// sandboxed puts the process into the Pod's network and into a file system with the container's volumes.
func (c *container) sandboxed(l *launch, network *sandbox.Network, home string) error {
	p := c.p
	root := filepath.Join(p.dir, "roots", c.spec.Name)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("create the container's root: %w", err)
	}
	box := sandbox.Container{Network: network, Hostname: p.hostname(), Root: root, Program: l.spec.Path,
		Tools: c.program.Tools, Visible: append([]string{l.spec.Path}, c.program.Reads...),
		Mounts: []sandbox.Mount{{Source: home, Target: home}}}
	if p.hasIdentity() {
		box.Visible = append(box.Visible, p.volumeDir(identityVolume))
	}
	if ca := p.k.cfg.PodEnv["SSL_CERT_FILE"]; ca != "" {
		box.Visible = append(box.Visible, ca)
	}
	if !mountsHosts(c.spec) {
		box.Mounts = append(box.Mounts, sandbox.Mount{Source: p.k.hostsFile(), Target: "/etc/hosts", ReadOnly: true})
	}
	for _, m := range c.spec.VolumeMounts {
		mount, err := p.mountOf(c.spec, m)
		if err != nil {
			return err
		}
		mount.Target, mount.ReadOnly = path.Clean(m.MountPath), m.ReadOnly || !p.writable(m.Name)
		box.Mounts = append(box.Mounts, mount)
	}
	l.spec.Enter = box.Enter
	return nil
}

// mountOf says what is behind a volume mount; for a kind of volume that the lab only records it is an empty folder of
// the Pod.
func (p *pod) mountOf(spec corev1.Container, m corev1.VolumeMount) (sandbox.Mount, error) {
	dir := p.volumeDir(m.Name)
	for _, v := range p.seen().Spec.Volumes {
		if v.Name == m.Name && !hasFolder(v) {
			return sandbox.Mount{Source: dir}, os.MkdirAll(dir, 0o700)
		}
	}
	if _, err := p.localDir(spec, m.MountPath); err != nil {
		return sandbox.Mount{}, err
	}
	return sandbox.Mount{Source: dir, SubPath: strings.TrimPrefix(path.Join("/", m.SubPath), "/")}, nil
}

// writable says whether a container may write to a volume that it does not mount read-only.
func (p *pod) writable(name string) bool {
	for _, v := range p.seen().Spec.Volumes {
		if v.Name == name {
			return v.Secret == nil && v.ConfigMap == nil && v.Projected == nil && v.DownwardAPI == nil
		}
	}
	return true
}

// apiEnvironment names the API server as a kubelet does. The address is the one of the kubeconfigs of Pods.
func apiEnvironment(server string) (map[string]string, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("the API server's address for Pods: %w", err)
	}
	port := parsed.Port()
	if port == "" {
		port = "443"
	}
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": parsed.Hostname(), "KUBERNETES_SERVICE_PORT": port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
	}, nil
}

// dialer connects to an address that a probe names in the Pod's terms, as its own loopback.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// probeTarget returns where a probe of a port connects to. A probe without a host goes to the Pod's address.
func (c *container) probeTarget(host string, port int32) (string, dialer) {
	network := c.p.network()
	if network == nil {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		if local, ok := c.ports[port]; ok {
			return loopback(local), (&net.Dialer{}).DialContext
		}
		return "", nil
	}
	if host == "" {
		host = network.Address().String()
	}
	return net.JoinHostPort(host, fmt.Sprint(port)), network.DialContext
}
