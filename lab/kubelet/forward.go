package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

// How long a forwarded connection may be idle, and its streams may take to be opened: the kubelet's own defaults.
const (
	forwardIdle     = 4 * time.Hour
	forwardCreation = 30 * time.Second
	forwardDial     = 10 * time.Second
)

// serveForward forwards connections to ports of a Pod, as kubectl port-forward asks for it.
func (k *Kubelet) serveForward(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	to := forwarder{k, namespace}
	portforward.ServePortForward(w, r, to, name, types.UID(r.PathValue("uid")), options, forwardIdle, forwardCreation,
		portforward.SupportedProtocols)
}

// forwarder connects to ports of a namespace's Pods.
type forwarder struct {
	k         *Kubelet
	namespace string
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, pod string, _ types.UID, port int32,
	stream io.ReadWriteCloser) error {
	address, ok := f.k.cfg.Registry.Address(f.k.cfg.Cluster, f.namespace, pod, port)
	if !ok {
		return fmt.Errorf("pod %s/%s has no process of the lab on port %d", f.namespace, pod, port)
	}
	c, err := (&net.Dialer{Timeout: forwardDial}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect to port %d of pod %s/%s: %w", port, f.namespace, pod, err)
	}
	defer c.Close()
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, c)
		received <- err
	}()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, stream)
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			err = errors.Join(err, half.CloseWrite())
		}
		sent <- err
	}()
	select { // the program's end ends the connection; what the client has sent may still be answered after the client's
	case err = <-received:
	case <-sent:
		select {
		case err = <-received:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
