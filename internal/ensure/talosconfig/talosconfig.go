// Package talosconfig writes the talosconfig of a cluster into the state folder, and verifies it.
package talosconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// spare is how long before its end a client certificate is replaced. The provider's live a year.
const spare = 30 * 24 * time.Hour

// File is a talosconfig in the state folder.
type File struct {
	File        string
	Fingerprint string   // of the cluster's certificate authority
	Endpoints   []string // the load balancer
	Nodes       []string // the control plane servers' private addresses
}

// ForeignError says that a talosconfig is not of the cluster that the one in the state folder opens.
type ForeignError struct{ text string }

// Error implements error.
func (e *ForeignError) Error() string { return e.text }

// Write takes the credentials that the bootstrap provider keeps in the cluster that manages c, and points
// them at the load balancer, with all control plane servers behind it. manager is a management cluster, in which a
// cluster may have been created again; see Refresh.
func Write(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer, say flow.Say,
	manager *kube.Cluster, c situation.Watched) (File, error) {
	return write(ctx, cfg, tools, observer, say, manager, c, false)
}

// Refresh is Write for a cluster that exists, after its control plane's servers have changed: where the state folder
// has a talosconfig, another one has to be of the same authority, else the error is a *ForeignError.
func Refresh(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer, say flow.Say,
	manager *kube.Cluster) (File, error) {
	endpoint, err := situation.LiveEndpoint(ctx, cfg, tools, manager)
	if err != nil {
		return File{}, err
	}
	watched := situation.WatchedOf(cfg)
	watched.LoadBalancerIP = endpoint.IP
	return write(ctx, cfg, tools, observer, say, manager, watched, true)
}

func write(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer, say flow.Say,
	mgmt *kube.Cluster, c situation.Watched, same bool) (File, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: &corev1.SecretList{},
			Options: []client.ListOption{client.InNamespace(cfg.Namespace),
				client.MatchingLabels{capi.ClusterNameLabel: c.Name}}},
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(cfg.Namespace, c.Name)},
	)
	var config []byte
	var nodes []string
	err := wait.Wait{What: "the talosconfig", Within: cfg.ControlPlaneTimeout.D(), Changes: changes,
		Explain: observer.Progress(mgmt, c)}.Until(ctx, say, func(ctx context.Context) (_ string, err error) {
		var missing string
		if nodes, missing, err = nodesOf(ctx, mgmt, cfg.Namespace, c.Name, c.ControlPlane); missing != "" || err != nil {
			return missing, err
		}
		config, err = connect.SecretValue(ctx, mgmt, cfg.Namespace, c.Name+"-talosconfig", "talosconfig")
		if kube.Absent(err) {
			return "its Secret does not exist yet", nil
		}
		return "", err
	})
	if err != nil {
		return File{}, err
	}
	credentials, err := accepted(config, cfg.Namespace, c.Name)
	if err != nil {
		return File{}, err
	}
	out := File{File: platform.Talosconfig, Endpoints: []string{c.LoadBalancerIP}, Nodes: nodes}
	if out.Fingerprint, err = credentials.Fingerprint(); err != nil {
		return File{}, err
	}
	if same {
		if err := checkAuthority(tools, out.Fingerprint, cfg.Namespace, c.Name); err != nil {
			return File{}, err
		}
	}
	credentials.Point(out.Endpoints, out.Nodes)
	data, err := credentials.Bytes()
	if err != nil {
		return File{}, fmt.Errorf("write talosconfig: %w", err)
	}
	return out, tools.Files.Write(platform.Talosconfig, data)
}

// secretOf names where the bootstrap provider keeps the talosconfig.
func secretOf(namespace, cluster string) string {
	return "Secret " + namespace + "/" + cluster + "-talosconfig"
}

// accepted reads the talosconfig of the Secret, which whoever can write to the namespace can write.
func accepted(data []byte, namespace, cluster string) (*talos.Credentials, error) {
	credentials, err := talos.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("the talosconfig in %s is not used: %w. The bootstrap provider writes no such talosconfig: "+
			"find out who changed the Secret; once it is deleted, the provider writes it anew", secretOf(namespace, cluster),
			err)
	}
	return credentials, nil
}

// checkAuthority refuses credentials of another authority than those in the state folder. A file there that is damaged
// has no say.
func checkAuthority(tools platform.Tools, fingerprint, namespace, cluster string) error {
	file, err := tools.Files.Read(platform.Talosconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if is, err := describe(file); err == nil && is.fingerprint != fingerprint {
		return &ForeignError{fmt.Sprintf("the talosconfig in %s is of another certificate authority than %s: it is not used. "+
			"Find out who changed the Secret. Where the operator replaced the authority, move the file away",
			secretOf(namespace, cluster), tools.Files.Path(platform.Talosconfig))}
	}
	return nil
}

// nodesOf lists the private addresses of the control plane servers, and says what is missing to the ones that are to
// stay.
func nodesOf(ctx context.Context, mgmt *kube.Cluster, namespace, cluster, controlPlane string) (nodes []string,
	missing string, err error) {
	tcp, err := capi.Get(ctx, mgmt, namespace, capi.TalosControlPlaneKind, controlPlane)
	if err != nil {
		return nil, "", err
	}
	machines, err := capi.List(ctx, mgmt, namespace, capi.MachineKind, cluster)
	if err != nil {
		return nil, "", err
	}
	members := capi.ControlPlaneMachines(machines)
	for _, m := range members {
		if a := capi.Addresses(&m, capi.AddressInternal); len(a) > 0 {
			nodes = append(nodes, a[0])
		}
	}
	slices.Sort(nodes)
	switch want := int(capi.Number(tcp, "spec", "replicas")); {
	case len(nodes) < want:
		return nodes, fmt.Sprintf("%d of %d servers have a private address", len(nodes), want), nil
	case len(members) > want && capi.Rolling(tcp) == "": // the last of those that were replaced is still there
		return nodes, fmt.Sprintf("%d control plane Machines instead of %d", len(members), want), nil
	}
	return nodes, capi.Rolling(tcp), nil
}

// Verify compares the talosconfig in the state folder with the cluster's credentials and its control plane servers.
func Verify(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt *kube.Cluster, was File) flow.Verdict {
	file, err := tools.Files.Read(was.File)
	if errors.Is(err, fs.ErrNotExist) {
		return flow.Gone("the file %s is not in the state folder", was.File)
	}
	if err != nil {
		return flow.Unknown(err)
	}
	mine, err := describe(file)
	if err != nil {
		return flow.Gone("the file %s is damaged: %v", was.File, err)
	}
	config, err := connect.SecretValue(ctx, mgmt, cfg.Namespace, cfg.ClusterName+"-talosconfig", "talosconfig")
	if err != nil {
		return kube.Verdict(err)
	}
	if _, err := accepted(config, cfg.Namespace, cfg.ClusterName); err != nil {
		return flow.Unknown(err)
	}
	live, err := describe(config)
	if err != nil {
		return flow.Unknown(err)
	}
	nodes, missing, err := nodesOf(ctx, mgmt, cfg.Namespace, cfg.ClusterName, cfg.ControlPlaneName())
	switch {
	case err != nil:
		return kube.Verdict(err)
	case missing != "":
		return flow.Gone("%s", missing)
	case mine.fingerprint != live.fingerprint:
		return flow.Gone("the file %s is of another cluster", was.File)
	case time.Until(mine.expires) < spare:
		return flow.Gone("the certificate in %s ends on %s", was.File, mine.expires.Format(time.DateOnly))
	case !mine.forClients && live.forClients:
		return flow.Gone("the certificate in %s is not marked for use by a client, and Talos from v1.12.4 on refuses it",
			was.File)
	case !slices.Equal(mine.endpoints, was.Endpoints) || !slices.Equal(mine.nodes, nodes):
		return flow.Gone("the servers have changed")
	}
	return flow.Holds()
}

// ForClients tells whether the certificate of the talosconfig in the state folder is marked for use by a client. A file
// that is not there, or is damaged, is written anew by every run.
func ForClients(tools platform.Tools) bool {
	file, err := tools.Files.Read(platform.Talosconfig)
	if err != nil {
		return true
	}
	is, err := describe(file)
	return err != nil || is.forClients
}

// content is what Verify compares of a talosconfig.
type content struct {
	fingerprint      string
	expires          time.Time
	forClients       bool
	endpoints, nodes []string
}

// describe reads that from a talosconfig.
func describe(data []byte) (c content, err error) {
	credentials, err := talos.Parse(data)
	if err != nil {
		return c, err
	}
	if c.fingerprint, err = credentials.Fingerprint(); err != nil {
		return c, err
	}
	if c.forClients, err = credentials.ForClients(); err != nil {
		return c, err
	}
	c.expires, err = credentials.Expires()
	c.endpoints, c.nodes = credentials.Targets()
	return c, err
}
