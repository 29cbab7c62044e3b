package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/ensure/apply"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Workers are the worker pools that were applied.
type Workers struct {
	Pools   []WorkerPool      `json:"pools,omitempty"`
	Objects []platform.Object `json:"objects,omitempty"` // everything that was applied
}

// WorkerPool is one of them.
type WorkerPool struct {
	Name       string `json:"name"`
	ServerType string `json:"serverType"`
	Location   string `json:"location"`
	Image      string `json:"image"`
	Size       string `json:"size"` // servers: "3", or "1 to 4" where the cluster autoscaler chooses
}

// workersSpec is what the worker pools are made from. Without any it is the same whatever else is configured.
func workersSpec(cfg config.Config, sources render.Sources) (any, error) {
	if len(cfg.Workers) == 0 {
		return map[string]any{"pools": nil}, nil
	}
	var all []config.WorkerPool
	for _, p := range cfg.Workers {
		all = append(all, cfg.Pool(p))
	}
	v := sources.Vars
	i, err := sources.WorkerPool.Digest(v)
	if err != nil {
		return nil, err
	}
	delete(i.Variables, "WORKER_SERVER_TYPE") // the pools have it
	// Rendered once with the preferred values, so that a mistake in the file is found before anything is made.
	if _, err := render.Workers(cfg, sources, v, nil); err != nil {
		return nil, err
	}
	return map[string]any{"pools": all, "file": i, "imageName": cfg.ImageName}, nil
}

// Workers adds the step workers to a graph: the objects of the worker pools are applied to the cluster that manages
// this one. It runs before and after the pivot.
func (s *Set) Workers(g *flow.Graph, offer *flow.Step[Placement], image *flow.Step[Image]) *flow.Step[Workers] {
	return flow.Add(g, flow.Task[Workers]{
		Name:     "workers",
		Doc:      "the worker pools' objects are applied; Cluster API creates, replaces and removes their servers",
		Run:      flow.With2(s.runWorkers, offer, image),
		Spec:     s.made.workers,
		Verify:   s.verifyWorkers,
		Deadline: s.cfg.LoadBalancerTimeout.D() + s.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Answer, wait.Webhooks(s.cfg), wait.Rollout(s.cfg)},
	})
}

// manager is the cluster that manages this one: itself, or before the pivot the management cluster. With say it waits
// for an answer, as a run does; without, it asks once, as Verify does.
func (s *Set) manager(ctx context.Context, say flow.Say) (*kube.Cluster, error) {
	self, err := s.selfManaged(ctx, say)
	if err != nil || self != nil {
		return self, err
	}
	return connect.Cluster(s.tools, platform.ManagementKubeconfig)
}

// selfManaged is situation.AwaitSelfManaged; without say it is situation.SelfManaged.
func (s *Set) selfManaged(ctx context.Context, say flow.Say) (*kube.Cluster, error) {
	if say == nil {
		return situation.SelfManaged(ctx, s.cfg, s.tools, s.sources)
	}
	return situation.AwaitSelfManaged(ctx, say, s.cfg, s.tools, s.sources)
}

// runWorkers applies the pools and deletes what is no longer configured, with consent where that removes servers.
func (s *Set) runWorkers(ctx context.Context, say flow.Say, offer Placement, image Image) (Workers, error) {
	mgmt, err := s.manager(ctx, say)
	if err != nil {
		return Workers{}, err
	}
	deployments, templates, err := pools.Live(ctx, mgmt, s.cfg.Namespace, s.cfg.ClusterName)
	if err != nil {
		return Workers{}, err
	}
	if len(s.cfg.Workers)+len(deployments)+len(templates) == 0 {
		return Workers{}, nil
	}
	if err := s.checkManaged(ctx, mgmt); err != nil {
		return Workers{}, err
	}
	places, err := pools.Places(ctx, s.cfg, s.tools, mgmt, offer.choices(), image.of)
	if err != nil {
		return Workers{}, err
	}
	objects, err := render.Workers(s.cfg, s.sources, s.sources.Vars, places)
	if err != nil {
		return Workers{}, err
	}
	all, err := changes.ConsequencesOfPools(ctx, s.cfg, s.tools, mgmt, objects)
	if err != nil {
		return Workers{}, err
	}
	if err := agreed(s.tools, say, all, func() (string, error) { return keepPools(deployments), nil }); err != nil {
		return Workers{}, err
	}
	if err := s.waitControlPlaneVersion(ctx, say, mgmt, deployments, objects); err != nil {
		return Workers{}, err
	}
	if err := pools.EnsurePlacementGroups(ctx, say, mgmt, s.cfg.Namespace, s.cfg.ClusterName,
		render.PlacementGroups(s.cfg), templates); err != nil {
		return Workers{}, err
	}
	patience := s.cfg.LoadBalancerTimeout.D()
	if err := apply.Objects(ctx, s.cfg, say, mgmt, objects, &patience); err != nil {
		return Workers{}, err
	}
	if err := changes.DeleteLeftOut(ctx, say, mgmt, s.cfg.Namespace, all); err != nil {
		return Workers{}, err
	}
	return s.workersOutput(objects, places), nil
}

func (s *Set) workersOutput(objects []*unstructured.Unstructured, places map[string]render.PoolPlacement) Workers {
	var out Workers
	for _, p := range s.cfg.Workers {
		at := places[p.Name]
		out.Pools = append(out.Pools, WorkerPool{Name: p.Name, ServerType: at.ServerType, Location: at.Location,
			Image: at.Image, Size: p.Size()})
	}
	for _, o := range objects {
		out.Objects = append(out.Objects,
			platform.Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()})
	}
	return out
}

// of names the image of a schematic for an architecture; empty: there is none.
func (i Image) of(schematic, architecture string) string {
	for _, one := range append([]Image{i}, i.Others...) {
		if one.Architecture == architecture && one.Schematic == schematic {
			return one.Name
		}
	}
	return ""
}

// checkManaged refuses to change a cluster whose objects are being moved, or that the operator has paused.
func (s *Set) checkManaged(ctx context.Context, mgmt *kube.Cluster) error {
	cluster, err := capi.Get(ctx, mgmt, s.cfg.Namespace, capi.ClusterKind, s.cfg.ClusterName)
	switch {
	case kube.Absent(err):
		return fmt.Errorf("cluster %s has no Cluster object in the cluster that manages it: run apply first",
			s.cfg.ClusterName)
	case err != nil:
		return err
	}
	return refusePaused(cluster)
}

func refusePaused(cluster *unstructured.Unstructured) error {
	if !connect.Paused(cluster) {
		return nil
	}
	return fmt.Errorf("the Cluster object of %s is paused, by a pivot that is under way or by hand, so that its worker "+
		"pools cannot be changed: set the pools back to what they were and finish the pivot, or unpause it",
		cluster.GetName())
}

// RefuseWorkers is the refusal of the step workers, for objects of the pools and what applying them does; nil: it
// refuses nothing. applied tells that the step apply gives the control plane its version before. err is why that is not
// known.
func (refusals) RefuseWorkers(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	objects []*unstructured.Unstructured, all []changes.Consequence, applied bool) (refused, err error) {
	cluster, err := capi.Get(ctx, manager, cfg.Namespace, capi.ClusterKind, cfg.ClusterName)
	if kube.Absent(err) {
		return nil, nil // there is no pool yet
	}
	if err != nil {
		return nil, err
	}
	deployments, _, err := pools.Live(ctx, manager, cfg.Namespace, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	refused = errors.Join(refusePaused(cluster),
		refusal(tools, all, func() (string, error) { return keepPools(deployments), nil }))
	if applied || !changesVersion(deployments, objects) {
		return refused, nil
	}
	tcp, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return refused, err
	}
	return errors.Join(refused, refuseNewer(cfg, tcp)), nil
}

// changesVersion reports whether applying objects gives servers of a pool another version of Kubernetes.
func changesVersion(was []unstructured.Unstructured, objects []*unstructured.Unstructured) bool {
	version := []string{"spec", "template", "spec", "version"}
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		i := slices.IndexFunc(was, func(d unstructured.Unstructured) bool {
			return d.GetKind() == o.GetKind() && d.GetName() == o.GetName()
		})
		return i >= 0 && capi.Text(&was[i], version...) != capi.Text(o, version...)
	})
}

// refuseNewer refuses to give workers a version that the control plane is not to have.
func refuseNewer(cfg config.Config, tcp *unstructured.Unstructured) error {
	has := capi.Text(tcp, "spec", "version")
	if has == cfg.KubernetesVersion {
		return nil
	}
	return fmt.Errorf("the control plane has Kubernetes %s and the workers are to get %s: change the control plane first",
		has, cfg.KubernetesVersion)
}

// waitControlPlaneVersion waits until the control plane's servers have the version that workers get: a kubelet must not
// be newer than the API servers.
func (s *Set) waitControlPlaneVersion(ctx context.Context, say flow.Say, mgmt *kube.Cluster,
	was []unstructured.Unstructured, objects []*unstructured.Unstructured) error {
	if !changesVersion(was, objects) {
		return nil
	}
	w := wait.Wait{What: "the control plane, which gets another version before the workers",
		Within: s.cfg.NodesTimeout.D(), Explain: s.observer.Obstacles(mgmt, situation.WatchedOf(s.cfg))}
	return untilIn(ctx, say, w, mgmt, s.inNamespace(capi.TalosControlPlaneKind),
		func(ctx context.Context) (string, error) {
			tcp, err := capi.Get(ctx, mgmt, s.cfg.Namespace, capi.TalosControlPlaneKind, s.cfg.ControlPlaneName())
			if err != nil {
				return "", err
			}
			if err := refuseNewer(s.cfg, tcp); err != nil {
				return "", wait.Final(err)
			}
			return capi.Rolling(tcp), nil
		})
}

// keepPools is how bootstrap.yaml says what the cluster has.
func keepPools(deployments []unstructured.Unstructured) string {
	var all []string
	for i := range deployments {
		all = append(all, fmt.Sprintf("MachineDeployment %s with %d servers", deployments[i].GetName(),
			capi.Number(&deployments[i], "spec", "replicas")))
	}
	return fmt.Sprintf("workers: of %v, and what else is named here", all)
}

// verifyWorkers asks for every object that was applied. What was changed in them since with kubectl is left as it is,
// as for the control plane; so is a pool that the cluster autoscaler has scaled.
func (s *Set) verifyWorkers(ctx context.Context, was Workers) flow.Verdict {
	if len(was.Objects) == 0 {
		return flow.Holds()
	}
	mgmt, err := s.manager(ctx, nil)
	if err != nil {
		return flow.Unknown(err)
	}
	cluster, err := capi.Get(ctx, mgmt, s.cfg.Namespace, capi.ClusterKind, s.cfg.ClusterName)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case connect.Paused(cluster):
		return flow.Holds() // the pivot that moves it compares every object
	}
	return situation.VerifyObjects(ctx, mgmt, s.cfg.Namespace, was.Objects, "", "")
}
