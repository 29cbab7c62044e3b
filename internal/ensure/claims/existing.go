package claims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// ExistingCluster is what a state folder has to know of a cluster of its name that it did not create.
type ExistingCluster struct {
	Sentence string `json:"sentence"`
	// Refused tells that the step reserve refuses a run with this state folder; else the run takes the cluster over.
	Refused bool `json:"refused"`
	// ReservedBy is the state folder that has reserved its name, from where and since when; empty: none has.
	ReservedBy string `json:"reservedBy,omitempty"`
	// ManagesItself tells that the management cluster is the cluster itself, as after a pivot.
	ManagesItself bool `json:"managesItself,omitempty"`
}

// howToGoOn ends the text of a cluster that exists and is not this state folder's.
const howToGoOn = "To go on, work with the state folder that made it (--state-dir; state pull, where STATE names a " +
	"store), or name the kubeconfig of the cluster that manages it, which after a pivot is its own " +
	"(MANAGEMENT_KUBECONFIG): a run takes it over then. Where both are lost, restore --diagnose says what can be done " +
	"with a backup: restore where its servers are gone, readopt where they work; destroy deletes it. Or choose " +
	"another CLUSTER_NAME"

// FindExisting asks whether a cluster of the configured name exists that this state folder did not create, and whether
// a run would take it over, as Reserve decides; nil: there is none, or it is this folder's. It changes nothing.
func FindExisting(ctx context.Context, cfg config.Config, tools platform.Tools) (*ExistingCluster, error) {
	tools = tools.WithDefaults()
	by, err := ownership.KnownIdentity(tools)
	if err != nil {
		return nil, err
	}
	found, err := hetzner.ClusterClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if foreign := (*hetzner.ForeignError)(nil); errors.As(err, &foreign) {
		return &ExistingCluster{Sentence: foreign.Error(), Refused: true}, nil
	}
	if err != nil || found != nil && by != "" && found.By == by {
		return nil, err
	}
	switch taken, err := takenOver(tools, found, by); {
	case err != nil:
		return nil, err
	case taken != nil:
		return &ExistingCluster{Sentence: taken.Error(), Refused: true}, nil
	}
	traces, err := hetzner.Traces(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil || found == nil && len(traces) == 0 {
		return nil, err
	}
	record, err := ownership.Read(tools.Files)
	if err != nil || found == nil && record != nil && record.Reservation != 0 {
		return nil, err // this folder's, and its reservation was deleted: the run makes it again
	}
	manager, err := lookForManager(ctx, cfg, tools)
	exists := fmt.Sprintf("cluster %s exists in this Hetzner project, and this state folder did not create it",
		cfg.ClusterName)
	if len(traces) > 0 {
		exists += ": there are " + strings.Join(traces, ", ")
	}
	if found != nil {
		exists += fmt.Sprintf("; its name is reserved for state folder %s%s", found.By, since(found))
	}
	switch {
	case err != nil:
		return &ExistingCluster{Refused: true, Sentence: fmt.Sprintf("%s. Whether the cluster is this state folder's "+
			"cannot be found out (%v): a run is refused, and creates nothing. %s", exists, err, howToGoOn)}, nil
	case manager == nil:
		return &ExistingCluster{Refused: true, Sentence: exists + ". A run is refused, and creates nothing. " + howToGoOn},
			nil
	}
	what := "the management cluster at " + manager.Host() + " holds its objects"
	self, err := IsItself(ctx, cfg, manager)
	if err != nil {
		return nil, err
	}
	if self {
		what = "it manages itself (" + manager.Host() + ")"
	}
	reservedBy := ""
	if found != nil {
		reservedBy = found.By + since(found)
	}
	return &ExistingCluster{ManagesItself: self, ReservedBy: reservedBy, Sentence: exists + "; " + what +
		". A run takes it over and does not bootstrap it: each " +
		"step finds what exists, and creates nothing a second time"}, nil
}

// lookForManager is the cluster that holds the Cluster object, among those that this state folder or the provider of
// its management cluster leads to; nil: none does. Unlike management.Open it writes nothing.
func lookForManager(ctx context.Context, cfg config.Config, tools platform.Tools) (*kube.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.AliveWithin)
	defer cancel()
	var all []*kube.Cluster
	for _, file := range []string{platform.ManagementKubeconfig, platform.Kubeconfig} {
		c, err := connect.Cluster(tools, file)
		if err == nil {
			all = append(all, c)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	_, looks := tools.Management.(platform.Looker)
	if len(all) == 0 && (looks || tools.ManagementGiven()) {
		exists, err := tools.Management.Exists(ctx, cfg.ManagementName())
		if err != nil {
			return nil, err
		}
		if exists {
			data, err := tools.Existing(ctx, cfg.ManagementName())
			if err != nil {
				return nil, err
			}
			if data != nil {
				c, err := connect.Management(tools, data)
				if err != nil {
					return nil, err
				}
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		if object, err := connect.FindCluster(ctx, cfg, c); err != nil || object != nil {
			return c, err
		}
	}
	return nil, nil
}

// IsItself tells whether a cluster that holds the Cluster object is the one that the object describes: a node of it is
// one of its Machines'.
func IsItself(ctx context.Context, cfg config.Config, manager *kube.Cluster) (bool, error) {
	machines, err := capi.List(ctx, manager, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return false, err
	}
	names := map[string]bool{}
	for i := range machines {
		names[capi.Text(&machines[i], "status", "nodeRef", "name")] = true
	}
	nodes := &corev1.NodeList{}
	if err := manager.List(ctx, nodes); err != nil {
		return false, fmt.Errorf("list the nodes of %s: %w", manager.Host(), err)
	}
	for _, n := range nodes.Items {
		if names[n.Name] {
			return true, nil
		}
	}
	return false, nil
}

// takenOver is the error where another state folder has taken the name over from this one; nil: none has. found is the
// reservation of now, by the identity that this folder has had before; empty: it had none.
func takenOver(tools platform.Tools, found *hetzner.Reservation, by string) (*TakenOverError, error) {
	if found == nil || by == "" || found.By == by {
		return nil, nil
	}
	record, err := ownership.Read(tools.Files)
	if err != nil || record == nil || record.Reservation != found.ID {
		return nil, err
	}
	return &TakenOverError{Cluster: record.Cluster, Claim: found}, nil
}
