package talos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane"
)

// apiPause is the pause between two attempts to reach a kube-apiserver.
const apiPause = 250 * time.Millisecond

// kubeletPause is the time before a kubelet that failed is started again.
const kubeletPause = 2 * time.Second

// runKubelet runs the server's kubelet, once it has an address and a cluster, until ctx is done.
func (y *system) runKubelet(ctx context.Context) {
	for ctx.Err() == nil {
		if err := y.serveKubelet(ctx); err != nil && ctx.Err() == nil {
			y.services.fail(serviceKubelet, err)
			sleep(ctx, kubeletPause)
		}
	}
	y.services.set(serviceKubelet, stateFinished, "Service finished")
}

func (y *system) serveKubelet(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // ends KubePrism's connections with the kubelet
	var following sync.WaitGroup
	defer func() {
		cancel()
		following.Wait()
	}()
	wait := func(reason error) { y.services.set(serviceKubelet, stateWaiting, reason.Error()) }
	node, err := y.await(ctx, y.config.nodeIP, wait)
	if err != nil {
		return err
	}
	wait(errors.New("waiting for the cluster's authority to sign the node's certificate"))
	if _, err := awaitSigner(ctx, y.clusterSigner); err != nil {
		return err
	}
	server, serverName, stop, err := y.kubeletServer(ctx, node)
	if err != nil {
		return err
	}
	defer stop()
	for {
		conn, err := y.dialAPI(ctx)
		if err == nil {
			conn.Close()
			break
		}
		wait(fmt.Errorf("waiting for a kube-apiserver: %w", err))
		if !sleep(ctx, apiPause) {
			return ctx.Err()
		}
	}
	identity, err := y.newNodeIdentity(ctx, serverName)
	if err != nil {
		return err
	}
	config, err := y.kubeletConfig(identity, node, server)
	if err != nil {
		return err
	}
	k, err := kubelet.New(config)
	if err != nil {
		return err
	}
	y.services.run(serviceKubelet, "Started")
	y.kubelet.Store(k)
	defer y.kubelet.Store(nil)
	following.Go(func() { y.keepNodeIdentity(ctx, identity, k) })
	return k.Run(ctx)
}

// kubeletServer is where the kubelet reaches the Kubernetes API, and the name to verify there: KubePrism, which knows
// every kube-apiserver of the cluster; without it a control plane's own, or the endpoint. stop ends what serves there.
func (y *system) kubeletServer(ctx context.Context, node netip.Addr) (url, name string, stop func(), err error) {
	if prism := y.config.Machine().Features().KubePrism(); prism.Enabled() {
		stop, err := y.serveKubePrism(ctx, node, prism.Port())
		return "https://" + withPort(node, prism.Port()), "localhost", stop, err
	}
	nothing := func() {}
	if y.etcd == nil {
		return y.config.Cluster().Endpoint().String(), "", nothing, nil
	}
	p, err := y.plane.await(ctx, func(p *plane.Plane) bool { return p != nil })
	if err != nil {
		return "", "", nothing, err
	}
	return p.Endpoint(), "", nothing, nil
}

func (y *system) kubeletConfig(identity *nodeIdentity, node netip.Addr, server string) (kubelet.Config, error) {
	version, err := y.config.kubeletVersion()
	if err != nil {
		return kubelet.Config{}, fmt.Errorf("machine.kubelet.image: %w", err)
	}
	client, admin := identity.configs(server)
	var taints []corev1.Taint
	for _, t := range y.config.nodeTaints() {
		taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	external := ""
	if public := y.server.publicIP(); public.IsValid() && public != node {
		external = public.String()
	}
	lab := y.talos.config
	var metadata http.Handler
	if lab.Metadata != nil {
		metadata = lab.Metadata(y.id)
	}
	var prism netip.AddrPort // on the host's network a Pod reaches it by "localhost"
	if p := y.config.Machine().Features().KubePrism(); p.Enabled() {
		prism = netip.AddrPortFrom(node, uint16(p.Port()))
	}
	return kubelet.Config{
		Cluster: y.config.Cluster().Name(), Node: y.hostname,
		Labels: y.config.nodeLabels(), Annotations: y.config.Machine().NodeAnnotations(), Taints: taints,
		ExternalCloudProvider: y.config.cloudProviderExternal(),
		InternalIP:            node.String(), ExternalIP: external,
		KubeletVersion: version, OSImage: "Talos (" + y.version + ")",
		Client: client, Admin: admin, Accepted: identity.authority,
		// Pods reach the API by the Service "kubernetes", which has no endpoints in a lab: the load balancer is as good.
		PodServer: y.config.Cluster().Endpoint().String(),
		Dir:       y.server.path("var", "lib", "kubelet"),
		Processes: lab.Processes, Programs: lab.Programs, Bin: lab.Bin, Lab: lab.Lab, Registry: lab.Registry,
		PodEnv: lab.PodEnv, Sandboxes: lab.Sandboxes, Metadata: metadata, LocalAPI: prism,
		Network: kubelet.NetworkFromAgent, ServingCSR: y.config.rotateServerCertificates(), Latency: lab.Latency.Kubelet,
		Log: y.log,
	}, nil
}
