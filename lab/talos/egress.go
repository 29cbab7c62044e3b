package talos

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/egress"
)

// egressProxy is how this server's kube-apiserver reaches the Pods of its cluster, on whatever server they run.
type egressProxy struct {
	socket   string
	services *egress.Services
	ended    chan struct{} // closed when the socket is
}

// serveEgress opens the proxy's socket and serves it until ctx is done. It resolves no Service before follow.
func (y *system) serveEgress(ctx context.Context) (*egressProxy, error) {
	p := &egressProxy{
		socket:   filepath.Join(y.talos.config.SocketDir, fmt.Sprintf("egress-%d.sock", y.id)),
		services: egress.NewServices(y.config.Cluster().Name(), y.talos.config.Registry, y.talos.config.Outages),
		ended:    make(chan struct{}),
	}
	l, err := egress.Listen(p.socket)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		if err := egress.New(p.services, y.log).Serve(ctx, l); err != nil {
			y.log.Error("the kube-apiserver cannot reach its webhooks any more", "reason", err)
		}
	}()
	return p, nil
}

// follow watches the cluster's Services for the proxy, until ctx is done.
func (p *egressProxy) follow(ctx context.Context, y *system, config *rest.Config) {
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		err = p.services.Watch(ctx, client)
	}
	if err != nil && ctx.Err() == nil {
		y.note("egress", "the kube-apiserver cannot reach its webhooks: "+err.Error())
	}
}
