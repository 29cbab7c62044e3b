package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Servers are the servers that have what a pass gives them.
type Servers struct {
	Names []string `json:"names"`
}

// server is one whose machine configuration is changed.
type server struct {
	name, node   string
	controlPlane bool
	routes       []talos.Route
}

// pass is what every server is to have in its machine configuration, and how its effect is seen.
type pass struct {
	doing  string // "to accept the new authorities"
	change func(authorities, *v1alpha1.Config, bool)
	// workersFirst changes the workers before the control plane.
	workersFirst bool
	// seen is how a kube-apiserver answers that has it; nil: it concerns the Talos API alone, and restarts nothing.
	seen func(authorities) probe
}

// accept has every server accept both, with Cluster API paused from now on.
func (in inputs) accept(ctx context.Context, say flow.Say, made Made) (Servers, error) {
	c, _, err := in.opened(ctx, say, made)
	if err != nil {
		return Servers{}, err
	}
	if err := in.pause(ctx, say, c.manager); err != nil {
		return Servers{}, err
	}
	return in.pass(ctx, say, made, pass{
		doing:  "to accept the new authorities",
		change: acceptNew,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.newClient, accepted: true}
		},
	})
}

// issue has every server issue with the new ones.
func (in inputs) issue(ctx context.Context, say flow.Say, made Made) (Servers, error) {
	return in.pass(ctx, say, made, pass{
		doing:  "to issue with the new authorities",
		change: issueWithNew,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.newClient, accepted: true,
				issuer: a.kubernetes.new.Crt}
		},
	})
}

// dropKubernetes has every server accept the new authority of the Kubernetes API alone. A kubelet gets a certificate of
// the new one when its own server drops the old one, and each kube-apiserver that has dropped it refuses the others: so
// the workers come first.
func (in inputs) dropKubernetes(ctx context.Context, say flow.Say, made Made) (Servers, error) {
	return in.pass(ctx, say, made, pass{
		doing:        "to accept the new authority of the Kubernetes API alone",
		change:       dropOldKubernetes,
		workersFirst: true,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.oldClient}
		},
	})
}

// dropTalos has every server accept the new authority of the Talos API alone. A worker gets the list of authorities
// that it accepts from the control plane (trustd), when its own configuration changes (Talos v1.13, secrets/api.go,
// generateWorker): so the control plane comes first.
func (in inputs) dropTalos(ctx context.Context, say flow.Say, made Made) (Servers, error) {
	return in.pass(ctx, say, made, pass{
		doing:  "to accept the new authority of the Talos API alone",
		change: dropOldTalos,
	})
}

// acceptNew adds the new authorities to those that a server accepts.
func acceptNew(a authorities, c *v1alpha1.Config, _ bool) {
	machine, cluster := c.MachineConfig, c.ClusterConfig
	if machine.MachineCA == nil || !same(machine.MachineCA.Crt, a.talos.new.Crt) {
		machine.MachineAcceptedCAs = with(machine.MachineAcceptedCAs, a.talos.new.Crt)
	}
	if cluster.ClusterCA == nil || !same(cluster.ClusterCA.Crt, a.kubernetes.new.Crt) {
		cluster.ClusterAcceptedCAs = with(cluster.ClusterAcceptedCAs, a.kubernetes.new.Crt)
	}
}

// issueWithNew makes the new authorities those that a server issues with. A worker does not have their keys.
func issueWithNew(a authorities, c *v1alpha1.Config, controlPlane bool) {
	machine, cluster := c.MachineConfig, c.ClusterConfig
	machine.MachineCA, machine.MachineAcceptedCAs = issuing(a.talos, machine.MachineCA, machine.MachineAcceptedCAs,
		controlPlane)
	cluster.ClusterCA, cluster.ClusterAcceptedCAs = issuing(a.kubernetes, cluster.ClusterCA, cluster.ClusterAcceptedCAs,
		controlPlane)
}

func issuing(a authority, is *pair, accepted []*xcrypto.PEMEncodedCertificate,
	key bool) (*pair, []*xcrypto.PEMEncodedCertificate) {
	if is != nil && same(is.Crt, a.new.Crt) {
		return is, accepted
	}
	if is != nil {
		accepted = with(accepted, is.Crt)
	}
	wanted := &pair{Crt: a.new.Crt}
	if key {
		wanted.Key = a.new.Key
	}
	return wanted, without(accepted, a.new.Crt)
}

// dropOldKubernetes removes the old authority of the Kubernetes API from those that a server accepts.
func dropOldKubernetes(a authorities, c *v1alpha1.Config, _ bool) {
	c.ClusterConfig.ClusterAcceptedCAs = without(c.ClusterConfig.ClusterAcceptedCAs, a.kubernetes.old)
}

// dropOldTalos removes the old authority of the Talos API from those that a server accepts.
func dropOldTalos(a authorities, c *v1alpha1.Config, _ bool) {
	c.MachineConfig.MachineAcceptedCAs = without(c.MachineConfig.MachineAcceptedCAs, a.talos.old)
}

// replaceOld is all passes at once, for a configuration that no server runs with yet.
func replaceOld(a authorities, c *v1alpha1.Config, controlPlane bool) {
	issueWithNew(a, c, controlPlane)
	dropOldKubernetes(a, c, controlPlane)
	dropOldTalos(a, c, controlPlane)
}

func same(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

func with(all []*xcrypto.PEMEncodedCertificate, cert []byte) []*xcrypto.PEMEncodedCertificate {
	if slices.ContainsFunc(all, func(c *xcrypto.PEMEncodedCertificate) bool { return same(c.Crt, cert) }) {
		return all
	}
	return append(slices.Clone(all), &xcrypto.PEMEncodedCertificate{Crt: cert})
}

func without(all []*xcrypto.PEMEncodedCertificate, cert []byte) []*xcrypto.PEMEncodedCertificate {
	return slices.DeleteFunc(slices.Clone(all), func(c *xcrypto.PEMEncodedCertificate) bool {
		return same(c.Crt, cert)
	})
}

// changed is a machine configuration with the change of a pass; nil: it has that already.
func (p pass) changed(a authorities, is config.Provider, controlPlane bool) ([]byte, error) {
	text := func(c config.Provider) ([]byte, error) {
		return c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	}
	before, err := text(is)
	if err != nil {
		return nil, err
	}
	wanted, err := is.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		if c.MachineConfig == nil || c.ClusterConfig == nil {
			return errors.New("it has no machine or no cluster")
		}
		p.change(a, c, controlPlane)
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := text(wanted)
	if err != nil || bytes.Equal(before, after) {
		return nil, err
	}
	return after, nil
}

// pass changes one server after another.
func (in inputs) pass(ctx context.Context, say flow.Say, made Made, p pass) (Servers, error) {
	c, a, err := in.opened(ctx, say, made)
	if err != nil {
		return Servers{}, err
	}
	all, err := in.listServers(ctx, say, c)
	if err != nil {
		return Servers{}, err
	}
	if p.workersFirst {
		slices.Reverse(all)
	}
	of := progress{planes: planesOf(all)}
	if of.seen, err = in.expected(ctx, of.planes); err != nil {
		return Servers{}, err
	}
	var out Servers
	for i, s := range all {
		if s.controlPlane { // also after a run that was killed right after it had changed a server
			if err := in.awaitPlane(ctx, say, c, a, p, of); err != nil {
				return Servers{}, err
			}
			of.done++
		}
		before, err := in.change(ctx, say, c, a, p, s)
		if err != nil {
			return Servers{}, fmt.Errorf("change server %s %s: %w", s.name, p.doing, err)
		}
		out.Names = append(out.Names, s.name)
		if before == nil {
			continue
		}
		if err := in.settle(ctx, say, c, a, p, s, *before, of); err != nil {
			return Servers{}, err
		}
		say("%d of %d servers were changed %s", i+1, len(all), p.doing)
	}
	return out, nil
}

func planesOf(all []server) (n int) {
	for _, s := range all {
		if s.controlPlane {
			n++
		}
	}
	return n
}

// nodeBefore is how a server's node was before the server was changed.
type nodeBefore struct {
	ready   bool
	kubelet time.Time // when its kubelet started
}

// change gives a server its machine configuration with the change. It returns how its node was before; nil: the server
// has the change already.
func (in inputs) change(ctx context.Context, say flow.Say, c clusters, a authorities, p pass,
	s server) (before *nodeBefore, err error) {
	err = wait.Wait{What: "the Talos of server " + s.name, Within: in.cfg.ControlPlaneTimeout.D(),
		Each: time.Minute}.Until(ctx, say, func(ctx context.Context) (string, error) {
		t, err := in.talos()
		if err != nil {
			return "", wait.Final(err)
		}
		is, route, err := readConfig(ctx, t, s)
		if err != nil {
			return "", err
		}
		wanted, err := p.changed(a, is, s.controlPlane)
		if err != nil || wanted == nil {
			return "", err
		}
		kubelet, err := t.Service(ctx, route, kubeletService)
		if err != nil {
			return "", err
		}
		lacks, err := unreadyNode(ctx, c.workload, s)
		if err != nil {
			return "", err
		}
		say("changing server %s %s", s.name, p.doing)
		before = &nodeBefore{ready: lacks == "", kubelet: kubelet.Started} // also where the answer is lost
		return "", refusal(t.ApplyMachineConfig(ctx, route, wanted))
	})
	return before, err
}

// refusal is an error of Talos after which asking again is of no use, or the error as it is.
func refusal(err error) error {
	if talos.ConfigRefused(err) {
		return wait.Final(err)
	}
	return err
}

// talos is a client with the talosconfig of the state folder.
func (in inputs) talos() (talos.Client, error) {
	config, err := in.tools.Files.Read(platform.Talosconfig)
	if err != nil {
		return nil, fmt.Errorf("read talosconfig: %w", err)
	}
	return in.tools.Talos(config)
}

// readConfig reads the machine configuration of a server over the first route that reaches it.
func readConfig(ctx context.Context, t talos.Client, s server) (config.Provider, talos.Route, error) {
	failed := errors.New("it has no address yet")
	for i, route := range s.routes {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		is, err := t.MachineConfig(asking, route)
		cancel()
		if err == nil {
			return is, route, nil
		}
		if i == 0 {
			failed = err
		}
	}
	return nil, talos.Route{}, failed
}

// balancer is the address that the talosconfig in the state folder leads to; empty: it has none.
func (in inputs) balancer() (string, error) {
	config, err := in.tools.Files.Read(platform.Talosconfig)
	if err != nil {
		return "", fmt.Errorf("read talosconfig: %w", err)
	}
	credentials, err := talos.Parse(config)
	if err != nil {
		return "", fmt.Errorf("%s is not used: %w", in.tools.Files.Path(platform.Talosconfig), err)
	}
	if endpoints, _ := credentials.Targets(); len(endpoints) > 0 {
		return endpoints[0], nil
	}
	return "", nil
}

// listServers are the servers of all Machines, those of the control plane first, each group by name. It leaves those
// out that are not at Hetzner any more: in the place of one CAPH makes another, with the new authorities.
func (in inputs) listServers(ctx context.Context, say flow.Say, c clusters) ([]server, error) {
	machines, err := capi.List(ctx, c.manager, in.cfg.Namespace, capi.MachineKind, in.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	there, err := hetzner.Servers(ctx, in.tools.Hetzner, in.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	balancer, err := in.balancer()
	if err != nil {
		return nil, err
	}
	var all []server
	for i := range machines {
		m := &machines[i]
		name := capi.ServerOf(m)
		if !slices.ContainsFunc(there, func(s hetzner.Server) bool { return s.Name == name }) {
			say("server %s of Machine %s is not at Hetzner: it is left out", name, m.GetName())
			continue
		}
		_, controlPlane := m.GetLabels()[capi.ControlPlaneLabel]
		all = append(all, server{name: name, node: nodeOf(m), controlPlane: controlPlane,
			routes: etcdview.RoutesOf(m, balancer)})
	}
	slices.SortFunc(all, func(a, b server) int {
		if a.controlPlane != b.controlPlane {
			if a.controlPlane {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return all, nil
}
