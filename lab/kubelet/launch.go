package kubelet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/standin"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// launch is a process that is ready to be started, with the ports that it was allotted.
type launch struct {
	spec  proc.Spec
	ports map[int32]int          // local ports by container port
	reach map[int32]net.Listener // forwards to the Pod's own network, by container port
	names []net.Listener         // those at the ports of Services

	registry *Registry
	pod      portKey // port left out
}

// release frees the ports.
func (l *launch) release() {
	for _, forward := range slices.AppendSeq(l.names, maps.Values(l.reach)) {
		forward.Close()
	}
	for port, local := range l.ports {
		key := l.pod
		key.port = port
		l.registry.release(key, local)
	}
}

// reachable is where others reach a port of the container.
func (l *launch) reachable(port int32) string {
	if forward, ok := l.reach[port]; ok {
		return forward.Addr().String()
	}
	return loopback(l.ports[port])
}

// prepare returns the process for the container, and allots its ports. The caller releases them.
func (c *container) prepare(env map[string]string) (_ *launch, err error) {
	p, cfg := c.p, c.p.k.cfg
	executable, err := c.executable()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(p.dir, "containers", c.spec.Name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, fmt.Errorf("create the container's folder: %w", err)
	}
	l := &launch{ports: map[int32]int{}, reach: map[int32]net.Listener{}, registry: cfg.Registry,
		pod: portKey{cfg.Cluster, p.namespace, p.name, 0}}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	network := p.network()
	for _, port := range portsOf(c.program.texts()) {
		if network != nil {
			break
		}
		key := l.pod
		key.port = port
		if l.ports[port], err = cfg.Registry.allot(key); err != nil {
			delete(l.ports, port)
			return nil, err
		}
	}

	if network != nil {
		if err := l.forward(cfg.InternalIP, network.Address(), reachedPorts(c.program.texts())); err != nil {
			return nil, err
		}
		if err := c.serve(l, network.Address()); err != nil {
			return nil, err
		}
	}

	all := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "HOSTNAME": p.hostname(),
		"NO_PROXY": "127.0.0.0/8,localhost", // Go's clients exclude loopback by default
	}
	if network == nil {
		// No KUBERNETES_SERVICE_HOST: with it, client libraries look for a token in the file system of a container.
		all["TMPDIR"] = home
		if p.hasIdentity() {
			all["KUBECONFIG"] = p.kubeconfig()
		}
	} else {
		api, err := apiEnvironment(cfg.PodServer)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, api)
		all[standin.NetworkVariable] = network.Address().String()
	}
	maps.Copy(all, cfg.PodEnv)
	maps.Copy(all, env)
	for name, text := range c.program.Env {
		if all[name], err = c.fill(l, text); err != nil {
			return nil, err
		}
	}
	args, err := c.arguments(l, all)
	if err != nil {
		return nil, err
	}
	l.spec = proc.Spec{
		Name: fmt.Sprintf("%s/%s", p.name, c.spec.Name), Path: executable, Args: args, Dir: home,
		LogFile: filepath.Join(p.k.logsDir(), fmt.Sprintf("%s_%s_%s.log", p.namespace, p.name, c.spec.Name)),
		Labels:  map[string]string{proc.LabelCluster: cfg.Cluster, proc.LabelPod: p.String(), proc.LabelServer: cfg.Node},
	}
	for name, value := range all {
		l.spec.Env = append(l.spec.Env, name+"="+value)
	}
	if network != nil {
		return l, c.sandboxed(l, network, home)
	}
	return l, nil
}

// forward has the Node's address forward to ports of a Pod with a network of its own, to which no other Pod has a way.
func (l *launch) forward(node string, pod netip.Addr, ports []int32) error {
	for _, port := range ports {
		listener, err := net.Listen("tcp4", net.JoinHostPort(node, "0"))
		if err != nil {
			return fmt.Errorf("have other Pods reach port %d: %w", port, err)
		}
		l.reach[port] = listener
		go tunnel.Serve(context.Background(), listener, tunnel.To(netip.AddrPortFrom(pod, uint16(port)).String()))
	}
	return nil
}

// serve has the names of the program's Services lead to the Pod, through the Node's address.
func (c *container) serve(l *launch, pod netip.Addr) error {
	cfg := c.p.k.cfg
	for service, port := range c.program.Serves {
		listener, err := net.Listen("tcp4", net.JoinHostPort(cfg.InternalIP, fmt.Sprint(port)))
		if err != nil {
			return fmt.Errorf("have other Pods reach Service %s/%s: %w", c.p.namespace, service, err)
		}
		l.names = append(l.names, listener)
		go tunnel.Serve(context.Background(), listener, tunnel.To(netip.AddrPortFrom(pod, uint16(port)).String()))
		if err := cfg.Registry.serve(cfg.Cluster, c.p.namespace, service, cfg.InternalIP); err != nil {
			return err
		}
	}
	return nil
}

// arguments returns the program's prefix, the container's arguments, and the program's own.
func (c *container) arguments(l *launch, env map[string]string) ([]string, error) {
	args := append([]string{}, c.program.Prefix...)
	if !c.program.NoContainerArgs {
		own := c.spec.Args
		if len(c.spec.Command) > 0 { // its first word is the program in the image
			own = append(append([]string{}, c.spec.Command[1:]...), own...)
		}
		for _, arg := range own {
			args = append(args, expand(arg, env))
		}
	}
	for _, text := range c.program.Args {
		arg, err := c.fill(l, text)
		if err != nil {
			return nil, err
		}
		args = append(args, expand(arg, env))
	}
	return args, nil
}

func (c *container) executable() (string, error) {
	cfg, name := c.p.k.cfg, c.program.Exec
	folder := cfg.Bin
	if c.program.Folder != nil {
		var err error
		if folder, err = c.program.Folder(tagOf(c.spec.Image)); err != nil {
			return "", fmt.Errorf("program %q for image %s: %w", name, c.spec.Image, err)
		}
	}
	file := filepath.Join(folder, name)
	switch {
	case name == labProgram:
		file = cfg.Lab
	case filepath.IsAbs(name):
		file = name
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "", fmt.Errorf("program %q for image %s: %w: build it, or correct the image mapping", name, c.spec.Image, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("program %q for image %s: %s is not an executable file: correct the image mapping", name,
			c.spec.Image, file)
	}
	return file, nil
}

// fill fills in the placeholders of a text. With a network of its own the program listens on all addresses of that.
func (c *container) fill(l *launch, text string) (string, error) {
	if c.p.network() != nil {
		text = strings.ReplaceAll(text, "127.0.0.1:{port:", ":{port:")
	}
	return fill(text, c.placeholder(l))
}

// placeholder returns the values of the placeholders in this container's launch.
func (c *container) placeholder(l *launch) func(word, argument string) (string, error) {
	p, cfg := c.p, c.p.k.cfg
	needs := func(value, what string) (string, error) {
		if value == "" {
			return "", fmt.Errorf("the lab has no %s", what)
		}
		return value, nil
	}
	return func(word, argument string) (string, error) {
		switch word {
		case "kubeconfig":
			if !p.hasIdentity() {
				return "", fmt.Errorf("the Pod has automountServiceAccountToken: false, so it has no identity")
			}
			return p.kubeconfig(), nil
		case "namespace":
			return p.namespace, nil
		case "pod":
			return p.name, nil
		case "node":
			return cfg.Node, nil
		case "tag":
			return tagOf(c.spec.Image), nil
		case "ca":
			return needs(cfg.PodEnv["SSL_CERT_FILE"], "certificate authority for Pods")
		case "proxy":
			return needs(cfg.PodEnv["HTTPS_PROXY"], "HTTPS proxy for Pods")
		case "dir":
			dir, err := p.localDir(c.spec, argument)
			if p.network() != nil { // mounted where the container expects it
				dir = argument
			}
			return dir, err
		default: // "port" and "reach"; checkPlaceholders knows no other
			port, err := strconv.ParseInt(argument, 10, 32)
			if err != nil {
				return "", err
			}
			if word == "reach" {
				return l.reachable(int32(port)), nil
			}
			if p.network() != nil {
				return argument, nil
			}
			return strconv.Itoa(l.ports[int32(port)]), nil // portsOf found it in the same texts
		}
	}
}
