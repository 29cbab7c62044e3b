package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/rescue"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// architectures of the snapshots that a Talos image consists of.
var architectures = []string{"amd64", "arm64"}

// startCloud serves the simulated Hetzner Cloud on the listener, and its HTTPS proxy, and resumes the recorded servers
// and load balancers. The servers run Talos.
func (lab *Lab) startCloud(ctx context.Context, api net.Listener) (err error) {
	off := func(id int64) { lab.cloud.PoweredOff(id) } // no server runs before the cloud exists
	lab.rescue = rescue.New(rescue.Config{Listen: lab.cfg.Network.Listen, Latency: lab.cfg.Latency.rescue(),
		PoweredOff: off,
		Log:        lab.cfg.Log})
	lab.talos, err = talos.New(talos.Config{
		Dir: lab.path("servers"), ClustersDir: lab.path("clusters"), SocketDir: lab.sockets,
		Bin: lab.cfg.Bin, Kubernetes: lab.kubernetes, Lab: lab.cfg.Lab,
		Processes: lab.processes, Listen: lab.cfg.Network.Listen, Registry: lab.registry, Outages: lab.outages,
		Programs: lab.programs, PodEnv: lab.podEnv(), Sandboxes: lab.sandboxes,
		Metadata:   func(serverID int64) http.Handler { return lab.cloud.Metadata(serverID) },
		Latency:    lab.cfg.Latency.talos(),
		PoweredOff: off,
		Log:        lab.cfg.Log,
	})
	if err != nil {
		return err
	}
	if lab.imageBuild = lab.tryImageBuild(ctx); !lab.imageBuild.Possible {
		lab.cfg.Log.Warn("this lab cannot build an image", "reason", lab.imageBuild.Reason)
	}
	slot := lab.state.Slot()
	lab.cloud, err = cloud.New(cloud.Config{
		Dir: lab.path("cloud"), Token: lab.token, ReadOnlyToken: lab.readOnly, API: lab.cfg.API,
		Machine: lab.machines(), Listen: lab.cfg.Network.Listen,
		PublicServers: slot.PublicServers(), PublicLoadBalancers: slot.PublicLoadBalancers(),
		Latency: lab.cfg.Latency.cloud(), RateLimit: lab.cfg.Latency.rateLimit(),
		RequestLog: lab.path("hetzner-requests.jsonl"),
		Log:        lab.cfg.Log,
	})
	if err != nil {
		return err
	}
	handler, err := lab.cloud.Proxy(lab.ca)
	if err != nil {
		return err
	}
	proxy, err := lab.cfg.Network.Listen(ctx, slot.HetznerProxy())
	if err != nil {
		return fmt.Errorf("serve the proxy to the simulated cloud: %w", err)
	}
	lab.serve(ctx, api, lab.hetznerHandler())
	lab.serve(ctx, proxy, handler)
	return lab.cloud.Resume(ctx)
}

func (lab *Lab) machines() machines { return machines{disk: lab.talos, rescue: lab.rescue} }

// stopCloud ends the simulated cloud and its servers; the data of both stay in their folders.
func (lab *Lab) stopCloud(ctx context.Context) error {
	if lab.cloud == nil {
		return nil
	}
	// The cloud first: it would start servers again that are stopped.
	return errors.Join(lab.cloud.Close(), lab.machines().close(ctx))
}

// ensureImage creates the snapshots of a Talos image if the project does not have them.
func (lab *Lab) ensureImage(name string) error {
	for _, a := range architectures {
		if err := lab.cloud.EnsureSnapshot(name, a); err != nil {
			return control.BadRequest(err)
		}
	}
	return nil
}
