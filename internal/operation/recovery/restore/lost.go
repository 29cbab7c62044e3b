package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

const (
	// lostFolder is where the lost cluster's own files go: they open nothing any more, and some would mislead.
	lostFolder = "lost"
	// bootstrapJournal is the file of the bootstrap's own journal, which flow writes.
	bootstrapJournal = "journal.json"
)

// ErrAlive is wrapped by the refusal to restore a cluster that is not lost.
var ErrAlive = errors.New("the cluster is not lost")

// Lost is what is left of the cluster.
type Lost struct {
	// Balancer is the name of the load balancer that CAPH is to adopt; empty: it finds it by its label, or makes one.
	Balancer string `json:"balancer,omitempty"`
	// IP is the surviving load balancer's address; empty: there is none, and the cluster gets another address.
	IP string `json:"ip,omitempty"`
	// Was is the address that the cluster had.
	Was string `json:"was,omitempty"`
}

// ensureLost verifies that nothing exists that a restored cluster would conflict with: two clusters of one name and one
// set of keys would take each other's servers and addresses. What the folder knows of the lost cluster is set aside.
func (r inputs) ensureLost(ctx context.Context, say flow.Say) (Lost, error) {
	mine, err := r.underway()
	if err != nil {
		return Lost{}, err
	}
	if err := r.refuse(ctx, say, mine); err != nil {
		return Lost{}, err
	}
	if !mine {
		if err := r.setLostAside(); err != nil {
			return Lost{}, fmt.Errorf("set the files of the lost cluster aside: %w", err)
		}
		// From here on the folder is the restore's, and what is in it is its own.
		began := records.Restore{ClusterIdentity: r.source.Identity(), Began: time.Now().UTC()}
		if err := began.Write(r.tools.Files); err != nil {
			return Lost{}, err
		}
	}
	return r.findSurvivors(ctx, say)
}

// verifyLost asks again: between the look and the claim another state folder may have restored the cluster, also while
// this restore was interrupted for days. What this restore created does not count.
func (r inputs) verifyLost(ctx context.Context, _ Lost) flow.Verdict {
	if err := r.refuseOthers(ctx); err != nil {
		return flow.Unknown(err)
	}
	return flow.Holds()
}

// refuse says why nothing may be restored: to a restore that is to begin, or, where it is under way, to one that is to
// resume.
func (r inputs) refuse(ctx context.Context, say flow.Say, underway bool) error {
	if underway {
		return r.refuseOthers(ctx)
	}
	return r.refuseAlive(ctx, say)
}

// refuseOthers says what exists that this restore, which is under way, has not created. Its Cluster object comes before
// every server, and once the pivot has begun to move that, what exists is its own.
func (r inputs) refuseOthers(ctx context.Context) error {
	if moved, err := r.movedByThis(); err != nil || moved {
		return err
	}
	// First of all: where nothing exists a partially created management cluster does not matter.
	alive := r.refuseLiving(ctx)
	if alive == nil {
		return nil
	}
	switch made, err := r.madeBefore(ctx); {
	case err != nil:
		return fmt.Errorf("find out whether what lives is what this restore has made: %w", err)
	case made:
		return nil
	}
	return fmt.Errorf("%w. No management cluster says that this restore has made it. Where another state folder has "+
		"restored the cluster meanwhile, remove %s, which holds nothing but the lost cluster's own files (in %s)", alive,
		records.RestoreFiles(r.tools.Files), lostFolder)
}

// underway tells whether the folder is in the middle of the restore of this very backup.
func (r inputs) underway() (bool, error) {
	record, err := records.ReadRestore(r.tools.Files)
	return record != nil && record.ClusterIdentity == r.source.Identity() && record.Ended.IsZero(), err
}

// refuseAlive says why the cluster is not lost, or not this state folder's to restore. A restore that has lost its own
// folder is recognized by what it left in the management cluster, and by its claim, which goes at its end.
func (r inputs) refuseAlive(ctx context.Context, say flow.Say) error {
	claim, err := hetzner.RestoreClaim(r.cfg.ClusterName).Find(ctx, r.tools.Hetzner)
	if err != nil {
		return err
	}
	cluster, err := r.heldBeside(ctx)
	switch {
	case err != nil:
		return err
	case cluster == nil:
	case claim != nil && r.isRestored(cluster):
		say("management cluster %s holds what an earlier restore of this backup made: resuming it",
			r.cfg.ManagementName())
		return nil
	default:
		return fmt.Errorf("%w: management cluster %s holds its objects, and creates its servers again by itself. Where only "+
			"etcd is lost, that is another recovery than this one; where the servers are to be given up, delete it first "+
			"(kind delete cluster --name %s), then the servers. destroy takes the load balancer as well, and with it the "+
			"address, unless that is protected against deletion at Hetzner", ErrAlive, r.cfg.ManagementName(),
			r.cfg.ManagementName())
	}
	if claim != nil {
		if by, err := ownership.KnownIdentity(r.tools); err != nil || claim.By != by {
			return cmp.Or[error](err, &claims.RecoveringError{Claim: claim})
		}
	}
	return r.refuseLiving(ctx)
}

// heldBeside is the Cluster object in the management cluster; nil: there is none.
func (r inputs) heldBeside(ctx context.Context) (*unstructured.Unstructured, error) {
	mgmt, err := recovery.Management(ctx, r.cfg, r.tools)
	if err != nil || mgmt == nil {
		return nil, err
	}
	cluster, err := connect.FindCluster(ctx, r.cfg, mgmt)
	if err != nil {
		return nil, fmt.Errorf("find out whether management cluster %s holds the cluster: %w", r.cfg.ManagementName(), err)
	}
	return cluster, nil
}

// isRestored tells whether a Cluster object is one that a restore of this backup has made.
func (r inputs) isRestored(cluster *unstructured.Unstructured) bool {
	return cluster.GetAnnotations()[capi.RestoredAnnotation] == r.source.Identity().Snapshot
}

// refuseLiving asks Hetzner for the cluster's servers, and the cluster itself.
func (r inputs) refuseLiving(ctx context.Context) error {
	servers, err := hetzner.Servers(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return err
	}
	if len(servers) > 0 {
		return fmt.Errorf("%w: its servers %s exist. A restore makes new ones beside them, with the same keys and the same "+
			"load balancer; it is for a cluster whose servers are all gone. If they are beyond repair, delete them first",
			ErrAlive, hetzner.ServerNames(servers))
	}
	return r.refuseAnswer(ctx)
}

// refuseAnswer asks the cluster itself, with what the backup and the folder know of it. Silence is what is wanted here:
// that there is no server is known from Hetzner already. A cluster of which a rehearsal makes a copy is not asked.
func (r inputs) refuseAnswer(ctx context.Context) error {
	var kubeconfigs [][]byte
	if mine, err := r.tools.Files.Read(platform.Kubeconfig); err == nil {
		kubeconfigs = append(kubeconfigs, mine)
	}
	if s := r.source.Secret(r.cfg.ClusterName + "-kubeconfig"); s != nil && !r.source.Copies {
		if value, err := backup.SecretData(s, "value"); err == nil {
			kubeconfigs = append(kubeconfigs, value)
		}
	}
	for _, k := range kubeconfigs {
		c, err := r.tools.Connect(k)
		if err != nil {
			continue // a file that opens nothing
		}
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		uid, err := c.UID(asking)
		cancel()
		if err == nil && uid == r.source.Identity().UID {
			return fmt.Errorf("%w: it answers at %s", ErrAlive, c.Host())
		}
		// its certificate was taken: it is signed by the cluster's authority
		if status := (apierrors.APIStatus)(nil); errors.As(err, &status) {
			return fmt.Errorf("%w: an API server with its authority answers at %s, though with a refusal: %w", ErrAlive,
				c.Host(), err)
		}
	}
	return nil
}

// setLostAside moves what the state folder has of the lost cluster aside: its journal says of every step that
// it is done, its pivot that it is a point of no return, another recovery that it is to be resumed.
func (r inputs) setLostAside() error {
	for _, name := range []string{bootstrapJournal, records.PivotFolder, platform.Kubeconfig, platform.Talosconfig,
		platform.ManagementKubeconfig, connect.CleaningFile, connect.ReplacementFile, records.QuorumFolder,
		records.ReadoptFolder} {
		if err := r.tools.Files.Move(name, filepath.Join(records.RestoreFolder, lostFolder, name)); err != nil {
			return err
		}
	}
	return nil
}

// findSurvivors looks for what the new servers can take over.
func (r inputs) findSurvivors(ctx context.Context, say flow.Say) (Lost, error) {
	out, notes, err := r.survivors(ctx)
	for _, n := range notes {
		say("%s", n)
	}
	return out, err
}

// survivors says what becomes of the cluster's address, too, and what that breaks.
func (r inputs) survivors(ctx context.Context) (out Lost, notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	var host string
	out.Was, host = r.source.Endpoint()
	if kept, err := r.keptAddress(ctx, out.Was, note); err != nil || kept {
		return out, notes, err
	}
	lb, err := hetzner.SurvivingBalancer(ctx, r.tools.Hetzner, r.cfg.ClusterName, out.Was)
	if err != nil {
		return Lost{}, nil, err
	}
	switch {
	case lb == nil:
		note("note: the load balancer is gone too: the cluster gets another address than %s. Kubeconfigs that were given "+
			"out, DNS records and service account tokens that were issued (they name the address) stop working; new "+
			"kubeconfigs are in the state folder, Pods get new tokens", out.Was)
		if host != out.Was && host != "" {
			note("note: the cluster is reached as %s, which must point to its new load balancer", host)
		}
	case lb.IPv4 != out.Was:
		out.IP = lb.IPv4
		note("note: load balancer %s has the address %s, the cluster had %s: kubeconfigs and tokens that name the old one "+
			"stop working", lb.Name, lb.IPv4, out.Was)
	default:
		out.IP = lb.IPv4
		note("load balancer %s survived: the cluster keeps its address %s", lb.Name, lb.IPv4)
	}
	if lb != nil && !lb.Labelled {
		out.Balancer = lb.Name
	}
	return out, notes, nil
}

// keptAddress says what becomes of the address where a Primary IP keeps it; false: none does.
func (r inputs) keptAddress(ctx context.Context, was string, note func(string, ...any)) (bool, error) {
	if !r.source.KeepsAddress() {
		return false, nil
	}
	endpoint, err := hetzner.FindEndpoint(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	switch {
	case err != nil || endpoint == nil:
		return false, err
	case endpoint.IPv4.String() != was:
		note("note: Primary IP %d of the cluster has the address %s, the cluster had %s: kubeconfigs and tokens that "+
			"name the old one stop working", endpoint.PrimaryIP, endpoint.IPv4, was)
	case endpoint.LoadBalancer == 0:
		note("the load balancer is gone, Primary IP %d has its address: the cluster keeps %s, with another load balancer",
			endpoint.PrimaryIP, was)
	default:
		note("the cluster keeps its address %s (Primary IP %d)", was, endpoint.PrimaryIP)
	}
	return true, nil
}

// claimRestore ensures that no other state folder restores the cluster: two people with one backup each, at three in
// the morning, would make two clusters of one name and one set of keys. That the reservation of the cluster is another
// state folder's says nothing here: that one's cluster is lost.
func (r inputs) claimRestore(ctx context.Context, say flow.Say, _ Lost) (steps.Reservation, error) {
	found, err := claims.Recover(ctx, r.cfg, r.tools, say, r.madeBefore)
	return recovery.Reservation(found), err
}

// madeBefore tells whether the management cluster has what an earlier run of this restore made, perhaps from another
// state folder, which can be lost, too.
func (r inputs) madeBefore(ctx context.Context) (bool, error) {
	cluster, err := r.heldBeside(ctx)
	return cluster != nil && r.isRestored(cluster), err
}
