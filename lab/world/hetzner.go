package world

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/rescue"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// architectures of the snapshots that a Talos image consists of.
var architectures = []string{"amd64", "arm64"}

// startCloud serves the simulated Hetzner Cloud on the listener, and its HTTPS proxy, and resumes the recorded servers
// and load balancers. The servers run Talos.
func (w *World) startCloud(ctx context.Context, api net.Listener) (err error) {
	off := func(id int64) { w.cloud.PoweredOff(id) } // no server runs before the cloud exists
	w.rescue = rescue.New(rescue.Config{Listen: w.cfg.Network.Listen, Latency: w.cfg.Latency.rescue(), PoweredOff: off,
		Log: w.cfg.Log})
	w.talos, err = talos.New(talos.Config{
		Dir: w.path("servers"), ClustersDir: w.path("clusters"), SocketDir: w.sockets,
		Bin: w.cfg.Bin, Lab: w.cfg.Lab,
		Processes: w.processes, Listen: w.cfg.Network.Listen, Registry: w.registry, Outages: w.outages,
		Programs: w.programs, PodEnv: w.podEnv(),
		Latency:    w.cfg.Latency.talos(),
		PoweredOff: off,
		Log:        w.cfg.Log,
	})
	if err != nil {
		return err
	}
	if w.imageBuild = w.tryImageBuild(ctx); !w.imageBuild.Possible {
		w.cfg.Log.Warn("this lab cannot build an image", "reason", w.imageBuild.Reason)
	}
	slot := w.state.slot()
	w.cloud, err = cloud.New(cloud.Config{
		Dir: w.path("cloud"), Token: w.token,
		Machine: w.machines(), Listen: w.cfg.Network.Listen,
		PublicServers: slot.publicServers(), PublicLoadBalancers: slot.publicLoadBalancers(),
		Latency: w.cfg.Latency.cloud(), RateLimit: w.cfg.Latency.rateLimit(),
		RequestLog: w.path("hetzner-requests.jsonl"),
		Log:        w.cfg.Log,
	})
	if err != nil {
		return err
	}
	handler, err := w.cloud.Proxy(w.ca)
	if err != nil {
		return err
	}
	proxy, err := w.cfg.Network.Listen(ctx, slot.hetznerProxy())
	if err != nil {
		return fmt.Errorf("serve the proxy to the simulated cloud: %w", err)
	}
	w.serve(ctx, api, w.hetznerHandler())
	w.serve(ctx, proxy, handler)
	return w.cloud.Resume(ctx)
}

func (w *World) machines() machines { return machines{disk: w.talos, rescue: w.rescue} }

// stopCloud ends the simulated cloud and its servers; the data of both stay in their folders.
func (w *World) stopCloud(ctx context.Context) error {
	if w.cloud == nil {
		return nil
	}
	// The cloud first: it would start servers again that are stopped.
	return errors.Join(w.cloud.Close(), w.machines().close(ctx))
}

// ensureImage creates the snapshots of a Talos image if the project does not have them.
func (w *World) ensureImage(name string) error {
	for _, a := range architectures {
		if err := w.cloud.EnsureSnapshot(name, a); err != nil {
			return requestError{err}
		}
	}
	return nil
}
