package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/flow"
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
	doing string // "to accept the new authorities"
	// workersFirst is the order in which no kubelet is refused for longer than its own server takes: a kubelet gets a
	// certificate of the new authority when its server drops the old one, and each kube-apiserver then refuses the others.
	workersFirst bool
	change       func(authorities, *v1alpha1.Config, bool)
	seen         func(authorities) probe // of a kube-apiserver that has it
}

// accept has every server accept both.
func (in inputs) accept(ctx context.Context, say flow.Say) (Servers, error) {
	return in.pass(ctx, say, pass{
		doing:  "to accept the new authorities",
		change: acceptNew,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.newClient, accepted: true}
		},
	}, in.awaitWhole)
}

// issue has every server issue with the new ones.
func (in inputs) issue(ctx context.Context, say flow.Say) (Servers, error) {
	return in.pass(ctx, say, pass{
		doing:  "to issue with the new authorities",
		change: issueWithNew,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.newClient, accepted: true,
				issuer: a.kubernetes.new.Crt}
		},
	}, in.awaitWhole)
}

// drop has every server accept the new ones alone. It does not wait for every node first: one that was cut off between
// two servers may have left a kubelet with a certificate that only some accept.
func (in inputs) drop(ctx context.Context, say flow.Say) (Servers, error) {
	return in.pass(ctx, say, pass{
		doing:        "to accept the new authorities alone",
		workersFirst: true,
		change:       dropOld,
		seen: func(a authorities) probe {
			return probe{roots: a.kubernetes.both(), client: a.kubernetes.oldClient}
		},
	}, func(context.Context, flow.Say, clusters) error { return nil })
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

// dropOld removes the old authorities from those that a server accepts.
func dropOld(a authorities, c *v1alpha1.Config, controlPlane bool) {
	issueWithNew(a, c, controlPlane) // one that was made from the old bundle in the middle of the rotation
	machine, cluster := c.MachineConfig, c.ClusterConfig
	machine.MachineAcceptedCAs = without(machine.MachineAcceptedCAs, a.talos.old)
	cluster.ClusterAcceptedCAs = without(cluster.ClusterAcceptedCAs, a.kubernetes.old)
}

func same(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

func with(all []*xcrypto.PEMEncodedCertificate, cert []byte) []*xcrypto.PEMEncodedCertificate {
	if slices.ContainsFunc(all, func(c *xcrypto.PEMEncodedCertificate) bool { return same(c.Crt, cert) }) {
		return all
	}
	return append(slices.Clone(all), &xcrypto.PEMEncodedCertificate{Crt: cert})
}

func without(all []*xcrypto.PEMEncodedCertificate, cert []byte) []*xcrypto.PEMEncodedCertificate {
	return slices.DeleteFunc(slices.Clone(all), func(c *xcrypto.PEMEncodedCertificate) bool { return same(c.Crt, cert) })
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

// pass changes one server after another, until none is left that lacks it: Cluster API may have made one meanwhile.
func (in inputs) pass(ctx context.Context, say flow.Say, p pass,
	begin func(context.Context, flow.Say, clusters) error) (Servers, error) {
	c, a, err := in.opened(ctx, say)
	if err != nil {
		return Servers{}, err
	}
	if err := begin(ctx, say, c); err != nil {
		return Servers{}, err
	}
	for {
		all, err := in.listServers(ctx, c)
		if err != nil {
			return Servers{}, err
		}
		if p.workersFirst {
			slices.Reverse(all)
		}
		changed, err := in.changeAll(ctx, say, c, a, p, all)
		if err != nil || !changed {
			return Servers{Names: names(all)}, err
		}
	}
}

func names(all []server) (found []string) {
	for _, s := range all {
		found = append(found, s.name)
	}
	slices.Sort(found)
	return found
}

// changeAll changes the servers that lack it, and tells whether there was one.
func (in inputs) changeAll(ctx context.Context, say flow.Say, c clusters, a authorities, p pass,
	all []server) (changed bool, err error) {
	of := progress{}
	for _, s := range all {
		if s.controlPlane {
			of.planes++
		}
	}
	if of.seen, err = in.expected(ctx, of.planes); err != nil {
		return false, err
	}
	for i, s := range all {
		if s.controlPlane { // also after a run that was killed right after it had changed a server
			if err := in.awaitPlane(ctx, say, c, p.seen(a), of); err != nil {
				return changed, err
			}
			of.done++
		}
		since, err := renewal(ctx, c.workload, s)
		if err != nil {
			return changed, err
		}
		applied, err := in.change(ctx, say, a, p, s)
		if err != nil {
			return changed, fmt.Errorf("change server %s %s: %w", s.name, p.doing, err)
		}
		if !applied {
			continue
		}
		changed = true
		if err := in.settle(ctx, say, c, p.seen(a), s, since, of); err != nil {
			return changed, err
		}
		say("%d of %d servers were changed %s", i+1, len(all), p.doing)
	}
	return changed, nil
}

// change gives a server its machine configuration with the change, unless it has that.
func (in inputs) change(ctx context.Context, say flow.Say, a authorities, p pass, s server) (applied bool, err error) {
	err = wait.Wait{What: "the Talos of server " + s.name, Within: in.cfg.ControlPlaneTimeout.D()}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
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
			say("changing server %s %s", s.name, p.doing)
			if err := t.ApplyMachineConfig(ctx, route, wanted); err != nil {
				return "", refusal(err)
			}
			applied = true
			return "", nil
		})
	return applied, err
}

// refusal is an error of Talos after which asking again is of no use, or the error as it is.
func refusal(err error) error {
	if slices.Contains([]codes.Code{codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied},
		status.Code(err)) {
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

// listServers are the servers of all Machines, those of the control plane first, each group by name.
func (in inputs) listServers(ctx context.Context, c clusters) ([]server, error) {
	machines, err := capi.List(ctx, c.manager, in.cfg.Namespace, capi.MachineKind, in.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	config, err := in.tools.Files.Read(platform.Talosconfig)
	if err != nil {
		return nil, fmt.Errorf("read talosconfig: %w", err)
	}
	credentials, err := talos.Parse(config)
	if err != nil {
		return nil, fmt.Errorf("%s is not used: %w", in.tools.Files.Path(platform.Talosconfig), err)
	}
	balancer := ""
	if endpoints, _ := credentials.Targets(); len(endpoints) > 0 {
		balancer = endpoints[0]
	}
	var all []server
	for i := range machines {
		m := &machines[i]
		_, controlPlane := m.GetLabels()[capi.ControlPlaneLabel]
		all = append(all, server{name: capi.ServerOf(m), node: nodeOf(m), controlPlane: controlPlane,
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
