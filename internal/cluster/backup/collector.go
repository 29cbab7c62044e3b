package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/platform"
)

// CollectorSource is a cluster whose contents were read for a backup, all but the snapshot of etcd.
type CollectorSource struct {
	Contents Contents
	o        Collector
	manager  *kube.Cluster // in which Cluster API is installed; nil: there is none
	members  func(context.Context) (talos.Client, []EtcdSource, error)
}

// Collector reads everything of a cluster that a backup holds.
type Collector struct {
	cfg   config.Config
	tools platform.Tools
}

// NewCollector reads nothing yet.
func NewCollector(cfg config.Config, tools platform.Tools) Collector {
	return Collector{cfg: cfg, tools: tools.WithDefaults()}
}

// Read reads everything that a backup holds but the snapshot of etcd. It only reads: nothing is paused, no cluster is
// written to, and none is made where one is missing. version is that of the command.
func (collector Collector) Read(ctx context.Context, say flow.Say, version string) (*CollectorSource, error) {
	s := &CollectorSource{o: collector}
	var err error
	if s.manager, s.Contents.Header.SelfManaged, err = collector.holder(ctx); err != nil {
		return nil, err
	}
	workload, err := collector.workload(ctx, s.manager)
	if err != nil {
		return nil, err
	}
	s.members = func(ctx context.Context) (talos.Client, []EtcdSource, error) {
		return etcdSources(ctx, collector.cfg, collector.tools, s.manager)
	}
	if err := s.begin(ctx, workload, version); err != nil {
		return nil, err
	}
	say("reading the objects of cluster %s", collector.cfg.ClusterName)
	if err := s.readObjects(ctx); err != nil {
		return nil, err
	}
	return s, s.complete(ctx, say, workload)
}

// Made is what was made in the place of the Cluster API objects of a cluster that are lost.
type Made struct {
	Objects, Secrets []unstructured.Unstructured
	SelfManaged      bool // the cluster managed itself
	Talos            talos.Client
	Members          []EtcdSource // of etcd, in the order in which they are asked for a snapshot
}

// ReadMade is Read for a cluster whose Cluster API objects are lost, with those that were made in their place.
func (collector Collector) ReadMade(ctx context.Context, say flow.Say, version string, workload *kube.Cluster,
	made Made) (*CollectorSource, error) {
	s := &CollectorSource{o: collector, Contents: Contents{Objects: made.Objects, Secrets: made.Secrets}}
	s.members = func(context.Context) (talos.Client, []EtcdSource, error) { return made.Talos, made.Members, nil }
	s.Contents.Header.SelfManaged, s.Contents.Header.FromServers = made.SelfManaged, true
	if made.SelfManaged {
		s.manager = workload
	}
	if err := s.begin(ctx, workload, version); err != nil {
		return nil, err
	}
	return s, s.complete(ctx, say, workload)
}

// begin reads which cluster it is.
func (s *CollectorSource) begin(ctx context.Context, workload *kube.Cluster, version string) (err error) {
	h := &s.Contents.Header
	h.Cluster, h.Slipway, h.Taken = s.o.cfg.ClusterName, version, time.Now().UTC().Truncate(time.Second)
	if h.UID, err = workload.UID(ctx); err != nil {
		return err
	}
	// Before everything else: a member of etcd that is a little behind is at it by the time that it gives the snapshot,
	// which must not be older.
	h.Etcd.Revision, err = etcdview.Revision(ctx, workload)
	return err
}

// complete reads what there is besides the objects.
func (s *CollectorSource) complete(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	if err := s.readFiles(); err != nil {
		return err
	}
	if err := s.readReleases(workload); err != nil {
		return err
	}
	if err := s.readVersions(ctx); err != nil {
		return err
	}
	say("reading what cluster %s has at Hetzner", s.o.cfg.ClusterName)
	return s.readInventory(ctx)
}

// holder is the cluster that holds the Cluster object: the cluster itself after a pivot, else the management cluster.
// Paused or not is the same to a backup; that both hold it is a pivot on its way.
func (collector Collector) holder(ctx context.Context) (_ *kube.Cluster, self bool, err error) {
	name := collector.cfg.ClusterName
	own, ownErr := collector.holds(ctx, platform.Kubeconfig)
	source, sourceErr := collector.holds(ctx, platform.ManagementKubeconfig)
	if own != nil && source != nil {
		ownUID, err := own.UID(ctx)
		sourceUID, sourceErr := source.UID(ctx)
		if err := errors.Join(err, sourceErr); err != nil {
			return nil, false, err
		}
		if ownUID != sourceUID {
			return nil, false, fmt.Errorf("both cluster %s and its management cluster hold the Cluster object: a pivot is on "+
				"its way; finish it (%s) or put it back (%s) first",
				name, collector.tools.Command("pivot"), collector.tools.Command("pivot", "--abort"))
		}
	}
	switch {
	case own != nil:
		return own, true, nil
	case source != nil:
		return source, false, nil
	}
	if err := errors.Join(ownErr, sourceErr); err != nil {
		return nil, false, fmt.Errorf("look who manages cluster %s: %w", name, err)
	}
	return nil, false, fmt.Errorf("there is no cluster %s to back up: neither %s nor %s of the state folder leads to "+
		"its Cluster object; where that is lost and the servers run, --from-servers makes it anew",
		name, collector.tools.Files.Path(platform.Kubeconfig), collector.tools.Files.Path(platform.ManagementKubeconfig))
}

// holds connects to the cluster of a kubeconfig in the state folder; nil where there is none, or it does not hold the
// Cluster object.
func (collector Collector) holds(ctx context.Context, file string) (*kube.Cluster, error) {
	c, object, err := connect.HeldBy(ctx, collector.cfg, collector.tools, file)
	switch {
	case c == nil && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil || object == nil:
		return nil, err
	}
	return c, nil
}

// workload connects to the cluster itself, by the kubeconfig that its manager keeps.
func (collector Collector) workload(ctx context.Context, manager *kube.Cluster) (*kube.Cluster, error) {
	kubeconfig, err := connect.WorkloadKubeconfig(ctx, manager, collector.cfg.Namespace,
		collector.cfg.ClusterName)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", collector.cfg.ClusterName, err)
	}
	return collector.tools.Connect(kubeconfig)
}

// readObjects reads the objects and Secrets, as they are stored.
func (s *CollectorSource) readObjects(ctx context.Context) error {
	inventory, err := capi.ReadInventory(ctx, s.manager, s.o.cfg.Namespace)
	if err != nil {
		return err
	}
	for _, o := range inventory.Of(s.o.cfg.ClusterName) {
		o.SetManagedFields(nil) // who wrote which field last: nobody can take that up again
		if o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Secret") {
			s.Contents.Secrets = append(s.Contents.Secrets, o)
		} else {
			s.Contents.Objects = append(s.Contents.Objects, o)
		}
	}
	return nil
}

func (s *CollectorSource) readInventory(ctx context.Context) error {
	inventory, err := hetzner.TakeInventory(ctx, s.o.tools.Hetzner)
	if err != nil {
		return err
	}
	s.Contents.Inventory.Resources = []Resource{}
	for _, r := range inventory.Of(s.o.cfg.ClusterName) {
		s.Contents.Inventory.Resources = append(s.Contents.Inventory.Resources, Resource{
			Kind: string(r.Kind), ID: r.ID, Name: r.Name, Type: r.Type, Location: r.Location, Addresses: r.Addresses,
			Labels: r.Labels(),
		})
	}
	return nil
}

// Snapshot streams a snapshot of etcd from the first member that gives one, and says in the header whose it is. ctx is
// the stream's.
func (s *CollectorSource) Snapshot(ctx context.Context, say flow.Say) (io.ReadCloser, error) {
	t, sources, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	return takeSnapshot(ctx, say, t, sources, &s.Contents.Header)
}
