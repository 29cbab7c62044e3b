package readopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// ErrManaged is wrapped by the refusal to readopt a cluster whose management is not lost.
var ErrManaged = errors.New("the cluster's management is not lost")

// ErrNotLiving is wrapped by the refusal to readopt a cluster that does not answer.
var ErrNotLiving = errors.New("the cluster does not answer")

// Orphan is a cluster that exists and has no management cluster.
type Orphan struct {
	UID string `json:"uid"` // of its namespace kube-system
	// Paused and Released tell how far an earlier run of this readoption came: its objects are there, and unpaused.
	Paused   bool `json:"paused,omitempty"`
	Released bool `json:"released,omitempty"`
}

// ensureOrphaned verifies that the cluster exists and has no management cluster, and begins the readoption's record.
func (r inputs) ensureOrphaned(ctx context.Context, say flow.Say) (Orphan, error) {
	o, _, kubeconfig, err := r.lookForManager(ctx, say)
	if err != nil {
		return Orphan{}, err
	}
	underway, err := records.ReadReadopt(r.tools.Files)
	if err != nil {
		return Orphan{}, err
	}
	if underway == nil {
		underway = &records.Readopt{ClusterIdentity: r.source.Identity(), Began: time.Now().UTC()}
	}
	underway.Accepted = r.accept
	if err := underway.Write(r.tools.Files); err != nil {
		return Orphan{}, err
	}
	return o, r.tools.Files.Write(platform.Kubeconfig, kubeconfig)
}

// lookForManager asks the cluster, and who may manage it. An answer that cannot be had never counts as "none".
func (r inputs) lookForManager(ctx context.Context, say flow.Say) (o Orphan, workload *kube.Cluster,
	kubeconfig []byte, err error) {
	if workload, kubeconfig, err = r.openWorkload(ctx); err != nil {
		return Orphan{}, nil, nil, err
	}
	o.UID = r.source.Identity().UID
	own, err := r.refuseManager(ctx, workload, "cluster "+r.cfg.ClusterName+" itself", r.itself())
	if err != nil {
		return Orphan{}, nil, nil, err
	}
	mgmt, err := recovery.Management(ctx, r.cfg, r.tools)
	if err != nil {
		return Orphan{}, nil, nil, err
	}
	var other Orphan
	if mgmt != nil {
		uid, err := mgmt.UID(ctx)
		if err != nil {
			return Orphan{}, nil, nil, fmt.Errorf("management cluster %s exists and does not answer: it may hold the "+
				"cluster's objects. Start it again; or, if it is lost for good, delete it: %w",
				r.cfg.ManagementName(), err)
		}
		if uid != o.UID {
			if other, err = r.refuseManager(ctx, mgmt, "management cluster "+r.cfg.ManagementName(), !r.itself()); err != nil {
				return Orphan{}, nil, nil, err
			}
		}
	}
	o.Paused, o.Released = own.Paused || other.Paused, own.Released || other.Released
	if o.Paused || o.Released {
		say("an earlier run of this readoption has put the objects back: resuming it")
	}
	return o, workload, kubeconfig, nil
}

// claimReadopt ensures that no other state folder readopts the cluster: two temporary management clusters with one
// cluster's objects would manage the same servers.
func (r inputs) claimReadopt(ctx context.Context, say flow.Say) (steps.Reservation, error) {
	found, err := claims.Recover(ctx, r.cfg, r.tools, say, func(ctx context.Context) (bool, error) {
		o, _, _, err := r.lookForManager(ctx, say)
		return o.Paused || o.Released, err
	})
	return recovery.Reservation(found), err
}

// openWorkload connects to the cluster by what the state folder and the backup have of it.
func (r inputs) openWorkload(ctx context.Context) (*kube.Cluster, []byte, error) {
	var kubeconfigs [][]byte
	var failed []error
	switch mine, err := r.tools.Files.Read(platform.Kubeconfig); {
	case err == nil:
		kubeconfigs = append(kubeconfigs, mine)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	if s := r.source.Secret(r.cfg.ClusterName + "-kubeconfig"); s != nil {
		value, err := backup.SecretData(s, "value")
		if err != nil {
			return nil, nil, err
		}
		if foreign := otherAuthority(kubeconfigs, value); foreign != nil {
			failed = append(failed, foreign)
		} else {
			kubeconfigs = append(kubeconfigs, value)
		}
	}
	want := r.source.Identity().UID
	for _, k := range kubeconfigs {
		c, err := r.tools.Connect(k)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, connect.AliveWithin)
		uid, err := c.UID(asking)
		cancel()
		switch {
		case err != nil:
			failed = append(failed, err)
		case uid != want:
			failed = append(failed, fmt.Errorf("another cluster than the backup's answers at %s: its kube-system has the UID "+
				"%s, the backup's has %s", c.Host(), uid, want))
		default:
			return c, k, nil
		}
	}
	return nil, nil, fmt.Errorf("%w as the cluster of the backup, and only one that lives can be readopted; where its "+
		"servers are lost, that is a restore, where etcd has lost its quorum, recover-quorum: %w",
		ErrNotLiving, errors.Join(failed...))
}

// otherAuthority refuses a backup's kubeconfig that trusts another authority than those of the state folder, none or
// one: the cluster's own never changes. One that is damaged has no say.
func otherAuthority(mine [][]byte, ofBackup []byte) error {
	theirs, err := kubeconfig.Accept(ofBackup)
	if err != nil {
		return fmt.Errorf("the kubeconfig in the backup is not used: %w", err)
	}
	for _, data := range mine {
		if is, err := kubeconfig.Accept(data); err == nil && !is.SameAuthority(theirs) {
			return errors.New("the kubeconfig in the backup trusts another certificate authority than the state folder's: it " +
				"is not used")
		}
	}
	return nil
}

// refuseManager refuses where a cluster has the Cluster object. target tells that this is where the readoption puts it,
// so that one with its mark is its own.
func (r inputs) refuseManager(ctx context.Context, c *kube.Cluster, where string, target bool) (Orphan, error) {
	cluster, err := connect.FindCluster(ctx, r.cfg, c)
	if err != nil {
		return Orphan{}, fmt.Errorf("find out whether %s holds the Cluster object: %w", where, err)
	}
	if cluster == nil {
		return Orphan{}, nil
	}
	record, err := records.ReadReadopt(r.tools.Files)
	if err != nil {
		return Orphan{}, err
	}
	underway := record != nil && record.Ended.IsZero()
	mine := target && cluster.GetAnnotations()[capi.ReadoptedAnnotation] == r.source.Identity().Snapshot
	switch {
	case cluster.GetDeletionTimestamp() != nil:
		return Orphan{}, fmt.Errorf("%w: %s holds %s, and it is being deleted, with every server of it. To stop that, "+
			"scale the Deployments of Cluster API and its providers in %s to 0 at once, take the finalizers of its objects "+
			"away, and run again", ErrManaged, where, kube.Describe(cluster), where)
	case mine && connect.Paused(cluster):
		return Orphan{Paused: true}, nil
	case mine && underway:
		return Orphan{Released: true}, nil
	case connect.Paused(cluster):
		return Orphan{}, fmt.Errorf("%w: %s holds %s, paused: where a pivot was under way, run pivot to its end; else "+
			"unpause it (spec.paused). If its objects are unusable, remove them without their finalizers first", ErrManaged,
			where, kube.Describe(cluster))
	}
	return Orphan{}, fmt.Errorf("%w: %s holds %s, unpaused: nothing is done", ErrManaged, where, kube.Describe(cluster))
}

// itself tells whether the objects go back into the cluster that they describe.
func (r inputs) itself() bool { return r.source.Contents.Header.SelfManaged }
