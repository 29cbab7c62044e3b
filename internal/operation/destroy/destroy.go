// Package destroy deletes a cluster, and everything that was created for it.
package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Options are what is deleted, or kept, only on request, because it can outlive its cluster.
type Options struct {
	Images  bool // the snapshots that Slipway made for the cluster
	Volumes bool // the volumes that the CSI driver made in it

	// KeepAddress keeps the Primary IP of the control plane endpoint for the next cluster of that name.
	KeepAddress bool
}

// Deletion is what destroy deletes, and what it keeps of the cluster's own.
type Deletion struct {
	Cluster string             `json:"cluster"`
	Take    []hetzner.Resource `json:"take"`
	Keep    []Kept             `json:"keep"`

	opts Options // that it was listed for
}

// Kept is a resource of the cluster that stays.
type Kept struct {
	hetzner.Resource
	Why string `json:"why"`
}

// Stage shows one part of an operation while it runs.
type Stage func(name, doc string, do func(flow.Say) error) error

const (
	// stallAfter is how long a deletion through Cluster API may stand still. A server's shutdown takes CAPH half a
	// minute, a lost connection to a workload cluster a minute; after three no controller is at work.
	stallAfter = 3 * time.Minute
	// sweepEvery and sweepSlowest are the times between two looks at Hetzner: soon after something changed, and while
	// nothing does.
	sweepEvery   = 3 * time.Second
	sweepSlowest = time.Minute
	// webhooksWithin is how long Cluster API's webhooks may be silent before its managers are taken for down: a Pod
	// whose node comes back serves within a minute.
	webhooksWithin = 2 * time.Minute
	csiDriver      = "csi.hetzner.cloud"
)

var errStalled = errors.New("nothing moved for " + config.Duration(stallAfter).String())

// Destroyer deletes a cluster, and everything that was made for it. Whoever calls it holds the lock of the journal.
type Destroyer struct {
	cfg            config.Config
	tools          platform.Tools
	sources        render.Sources
	sweepEvery     time.Duration
	sweepSlowest   time.Duration
	webhooksWithin time.Duration
}

// New makes no request. A cluster can be destroyed also where a file that it was made from is broken: then the files
// are left out.
func New(cfg config.Config, tools platform.Tools) Destroyer {
	return Destroyer{cfg: cfg, tools: tools.WithDefaults(), sources: render.ReadOrEmpty(cfg, tools.Overrides),
		sweepEvery: sweepEvery, sweepSlowest: sweepSlowest, webhooksWithin: webhooksWithin}
}

// Plan returns what Destroy would delete. It changes nothing.
func (d Destroyer) Plan(ctx context.Context, opts Options) (Deletion, error) {
	inventory, err := hetzner.TakeInventory(ctx, d.tools.Hetzner)
	if err != nil {
		return Deletion{}, err
	}
	d.attribute(ctx, inventory)
	return d.divide(inventory, opts), nil
}

// divide divides the cluster's resources into those that go and those that stay.
func (d Destroyer) divide(inventory hetzner.Inventory, opts Options) Deletion {
	plan := Deletion{Cluster: d.cfg.ClusterName, Take: []hetzner.Resource{}, Keep: []Kept{}, opts: opts}
	for _, r := range inventory.Of(plan.Cluster) {
		switch user := inventory.UsedElsewhere(r); {
		case r.Kind == hetzner.KindVolume && !opts.Volumes:
			plan.Keep = append(plan.Keep, Kept{r, "holds data: --volumes deletes it"})
		case r.Kind == hetzner.KindSnapshot && !opts.Images:
			plan.Keep = append(plan.Keep, Kept{r, "can serve the next cluster: --images deletes it"})
		case r.IsEndpointAddress() && opts.KeepAddress:
			plan.Keep = append(plan.Keep, Kept{r, "is kept for the next cluster of this name: --keep-address"})
		case r.Kind == hetzner.KindSnapshot && user != "":
			plan.Keep = append(plan.Keep, Kept{r, "server " + user + " of another cluster was created from it"})
		default:
			plan.Take = append(plan.Take, r)
		}
	}
	return plan
}

// Destroy takes the cluster away that PlanDestroy listed, and no volume that is not in the list. It can be killed
// anywhere and run again: everything is found by label, what has none of its own gets one first, and the management
// cluster goes last.
func (d Destroyer) Destroy(ctx context.Context, listed Deletion, stage Stage) error {
	removal := hetzner.NewRemoval(d.tools.Hetzner)
	var source *kube.Cluster
	for _, s := range []struct {
		name, doc string
		do        func(flow.Say) error
	}{
		{"look", "who manages the cluster; labels on what has to be found again when it is partially deleted",
			func(say flow.Say) (err error) {
				var silent bool
				if source, silent, err = d.standDown(ctx, say); err == nil {
					err = d.claim(ctx, say, removal, listed, silent)
				}
				if err == nil && source == nil {
					err = d.refuseUnseen(ctx)
				}
				return err
			}},
		{"cluster-api", "what a management cluster can delete itself", func(say flow.Say) error {
			return d.deleteThroughCAPI(ctx, say, source, removal)
		}},
		{"sweep", "everything with a label of the cluster, by the Hetzner API", func(say flow.Say) error {
			if err := d.sweep(ctx, say, removal, listed); err != nil {
				return err
			}
			return d.recordSwept()
		}},
		{"management", "the temporary management cluster, once it manages nothing", func(say flow.Say) error {
			if err := d.deleteManagement(ctx, say); err != nil {
				return err
			}
			// Until now the management cluster's CAPH might still have created servers.
			if err := d.sweep(ctx, say, removal, listed); err != nil {
				return err
			}
			// The last of what costs money: until then everything else can be created again at the same address.
			if err := d.sweepThose(ctx, say, removal, listed, hetzner.Resource.IsEndpointAddress); err != nil {
				return err
			}
			// The name last of all: whoever reserves it next may make servers of the same name, which a sweep would take for
			// what was left of the old ones.
			return d.sweepThose(ctx, say, removal, listed, hetzner.Resource.IsReservation)
		}},
	} {
		if err := stage(s.name, s.doc, func(say flow.Say) error { return s.do(say) }); err != nil {
			return err
		}
	}
	return d.forget()
}

// standDown finds the management cluster; nil where none answers. silent says that the cluster itself does not. One
// that manages itself is paused: deleting it through itself would end with the servers on which its providers run and
// leave the rest, and unpaused they create each server again that is deleted before their own.
func (d Destroyer) standDown(ctx context.Context, say flow.Say) (source *kube.Cluster, silent bool, err error) {
	self, err := situation.SelfManaged(ctx, d.cfg, d.tools, d.sources)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case err != nil:
		silent = true
		say("cluster %s does not answer and cannot be paused, so its servers go all at once: %v", d.cfg.ClusterName, err)
	case self != nil:
		if err := d.refuseOtherProject(ctx, self); err != nil {
			return nil, false, err
		}
		say("pausing cluster %s, which manages itself, so that it creates no server again", d.cfg.ClusterName)
		if err := capi.SetPaused(ctx, d.cfg, self, true); err != nil {
			say("it cannot be paused (%v): its servers go all at once instead", err)
		}
	}
	asking, cancel := context.WithTimeout(ctx, d.cfg.ManagementTimeout.D())
	defer cancel()
	source, uid, err := connect.OpenManagement(asking, d.cfg, d.tools, say)
	switch wrong := (*connect.WrongManagementError)(nil); {
	case ctx.Err() != nil:
		return nil, silent, context.Cause(ctx)
	case errors.As(err, &wrong):
		return nil, silent, wrong
	case err != nil:
		say("continuing through the Hetzner API: %v", err)
		return nil, silent, nil
	case source == nil:
		say("there is no management cluster")
		return nil, silent, nil
	}
	if self != nil {
		if own, err := self.UID(ctx); err == nil && own == uid {
			return nil, silent, nil // one and the same
		}
		return source, silent, nil
	}
	object, err := connect.FindCluster(asking, d.cfg, source)
	switch {
	case ctx.Err() != nil:
		return nil, silent, context.Cause(ctx)
	case err != nil:
		say("the objects of the management cluster cannot be read (%v): continuing through the Hetzner API", err)
		return nil, silent, nil
	case object != nil && object.GetDeletionTimestamp() == nil: // else a destroy has begun
		err = d.refuseOtherProject(ctx, source)
	}
	return source, silent, err
}

// claim labels what only its surroundings tell to be the cluster's, as long as they stand. A cluster that has just
// been silent is not asked once more.
func (d Destroyer) claim(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Deletion,
	silent bool) error {
	inventory, err := hetzner.ListResources(ctx, d.tools.Hetzner)
	if err != nil {
		return err
	}
	if !silent {
		d.attribute(ctx, inventory)
	}
	for _, r := range inventory.Of(d.cfg.ClusterName) {
		if listed.opts.Volumes && !listed.allows(r) {
			say("%s was not in the list and stays: to delete it: %s", r, d.tools.Command("destroy", "--volumes"))
		}
		if r.Claimed {
			continue
		}
		say("labelling %s as the cluster's (%s)", r, r.Because)
		if err := removal.Claim(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// attribute has the cluster itself say which volumes are its, where one of a CSI driver cannot be told otherwise.
func (d Destroyer) attribute(ctx context.Context, inventory hetzner.Inventory) {
	if slices.ContainsFunc(inventory.Resources,
		func(r hetzner.Resource) bool { return r.Kind == hetzner.KindVolume && r.Cluster == "" }) {
		inventory.Attribute(d.cfg.ClusterName, d.volumesInUse(ctx))
	}
}

// volumesInUse are the ids of the volumes that the cluster itself knows, attached or not; none where it does not
// answer.
func (d Destroyer) volumesInUse(ctx context.Context) []int64 {
	self, err := connect.Cluster(d.tools, platform.Kubeconfig)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connect.AliveWithin)
	defer cancel()
	volumes := &corev1.PersistentVolumeList{}
	if err := self.List(ctx, volumes); err != nil {
		return nil
	}
	var ids []int64
	for _, v := range volumes.Items {
		if v.Spec.CSI == nil || v.Spec.CSI.Driver != csiDriver {
			continue
		}
		if id, err := strconv.ParseInt(v.Spec.CSI.VolumeHandle, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// deleteManagement deletes the temporary management cluster unless it manages other clusters, or was not made by us.
func (d Destroyer) deleteManagement(ctx context.Context, say flow.Say) error {
	p, name := d.tools.Management, d.cfg.ManagementName()
	if err := connect.CheckManagementProvider(d.tools); err != nil {
		return fmt.Errorf("nothing of cluster %s is left at Hetzner, but its management cluster may create the servers "+
			"again: %w", d.cfg.ClusterName, err)
	}
	exists, err := p.Exists(ctx, name)
	switch {
	case err != nil && remembersManagement(d.tools):
		return fmt.Errorf("nothing of cluster %s is left at Hetzner, but %s cannot tell whether management cluster %s "+
			"exists: %w; if it does, it creates the "+
			"servers again as soon as it works: make it answer and run destroy again, or, where it is lost for good, remove %s",
			d.cfg.ClusterName, p.Name(), name, err, d.tools.Files.Path(platform.ManagementKubeconfig))
	case err != nil:
		say("%s cannot tell whether management cluster %s exists (%v): it is kept", p.Name(), name, err)
		return nil
	case !exists:
		return nil
	}
	source, uid, err := connect.OpenManagement(ctx, d.cfg, d.tools, say)
	if err != nil {
		return fmt.Errorf("nothing of cluster %s is left at Hetzner, but management cluster %s is not deleted: %w",
			d.cfg.ClusterName, name, err)
	}
	switch given, err := connect.ManagementGiven(ctx, d.cfg, d.tools); {
	case err != nil:
		return fmt.Errorf("management cluster %s is not deleted: %w", name, err)
	case given:
		return d.leaveManagement(ctx, say, source, uid)
	}
	if source != nil { // else it is partially created
		others, err := otherClusters(ctx, d.cfg, source)
		if err != nil {
			return fmt.Errorf("management cluster %s is not deleted: %w", name, err)
		}
		if len(others) > 0 {
			if err := connect.CheckClusterAbsent(ctx, d.cfg, source); err != nil {
				return fmt.Errorf("management cluster %s is not deleted, because it manages %s: %w", name,
					strings.Join(others, ", "), err)
			}
			say("leaving management cluster %s: it manages %s", name, strings.Join(others, ", "))
			return apply.RemoveNamespace(ctx, d.cfg, say, source)
		}
	}
	say("deleting management cluster %s (%s)", name, p.Name())
	return p.Delete(ctx, name)
}

// leaveManagement leaves a management cluster that was there before, whatever else it holds, and deletes in it the
// namespace that Slipway created for the cluster. In one that this state folder neither created nor adopted, and found
// by its name alone, it deletes nothing more.
func (d Destroyer) leaveManagement(ctx context.Context, say flow.Say, source *kube.Cluster, uid string) error {
	if source == nil {
		say("leaving management cluster %s: %v", d.cfg.ManagementName(), steps.ErrNotOurs)
		return nil
	}
	if err := connect.CheckClusterAbsent(ctx, d.cfg, source); err != nil {
		return err
	}
	used, err := connect.UsesManagement(d.tools, uid)
	if err != nil {
		return err
	}
	found := !used && !d.tools.ManagementGiven()
	kept := ""
	if d.cfg.Namespace == config.DefaultNamespace {
		kept = fmt.Sprintf(", with the Secret %s in namespace %s", config.TokenSecretName, d.cfg.Namespace)
	}
	if found {
		kept = " as it is"
	}
	say("leaving management cluster %s%s: %v", d.cfg.ManagementName(), kept, steps.ErrNotOurs)
	if found {
		return nil
	}
	return apply.RemoveNamespace(ctx, d.cfg, say, source)
}

// remembersManagement reports whether the state folder opens a management cluster that is not the cluster itself.
func remembersManagement(tools platform.Tools) bool {
	mgmt, err := connect.Cluster(tools, platform.ManagementKubeconfig)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	self, err := connect.Cluster(tools, platform.Kubeconfig)
	return err != nil || self.Host() != mgmt.Host()
}

func otherClusters(ctx context.Context, cfg config.Config, c *kube.Cluster) ([]string, error) {
	all, err := capi.Clusters(ctx, c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, o := range all {
		if o.GetNamespace() != cfg.Namespace || o.GetName() != cfg.ClusterName {
			names = append(names, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return names, nil
}

// forget removes what opened the cluster: it is gone, and its name may come again. What reports that it is goes last.
func (d Destroyer) forget() error {
	for _, name := range []string{platform.Kubeconfig, platform.Talosconfig, platform.ManagementKubeconfig,
		connect.CleaningFile, connect.ReplacementFile, destroyedFile} {
		if err := d.tools.Files.Remove(name); err != nil {
			return err
		}
	}
	// A recovery or a rotation that was under way is over, too: its record would keep everything out of the folder, and
	// the snapshot of a recovery holds every Secret.
	for _, folder := range []platform.Files{records.RestoreFiles(d.tools.Files), records.QuorumFiles(d.tools.Files),
		records.ReadoptFiles(d.tools.Files), records.RotationFiles(d.tools.Files)} {
		if err := folder.RemoveFolder(); err != nil {
			return err
		}
	}
	return records.ForgetPivot(d.tools.Files)
}
