package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/ensure/apply"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// change writes the numbers: first what gets more servers, then what gets fewer.
func (p Pool) change(ctx context.Context, say flow.Say, manager *kube.Cluster, c Change) error {
	_, _, groups := p.wanted(c.To)
	if err := pools.EnsurePlacementGroups(ctx, say, manager, p.cfg.Namespace, p.cfg.ClusterName, groups, nil); err != nil {
		return err
	}
	if slices.ContainsFunc(c.Deployments, func(d Deployment) bool { return !d.exists }) {
		objects, err := p.further(ctx, manager, c.To)
		if err != nil {
			return err
		}
		patience := p.cfg.LoadBalancerTimeout.D()
		if err := apply.Objects(ctx, p.cfg, say, manager, objects, &patience); err != nil {
			return err
		}
	}
	for _, more := range []bool{true, false} {
		for _, d := range c.Deployments {
			if !d.exists || !d.needed || d.From == d.To || d.To > d.From != more {
				continue
			}
			err := setReplicas(ctx, p.cfg, say, manager, capi.MachineDeploymentKind, d.Name, d.From, d.To)
			if err == nil {
				err = p.setMaxUnhealthy(ctx, manager, d)
			}
			if err != nil {
				return err
			}
		}
	}
	return p.deleteSurplus(ctx, say, manager, c.To, false)
}

// further are the objects of the pool that the cluster does not have yet, as the step workers makes them. They are made
// from the configuration, which must be what the pool's servers were made from.
func (p Pool) further(ctx context.Context, manager *kube.Cluster, to int) ([]*unstructured.Unstructured, error) {
	at := slices.IndexFunc(p.cfg.Workers, func(w config.WorkerPool) bool { return w.Name == p.name })
	if at < 0 {
		return nil, p.refused("%d servers need a further placement group, which is made from the configuration, and that "+
			"has no worker pool %s: add it to workers in bootstrap.yaml", to, p.name)
	}
	cfg := p.cfg
	cfg.Workers = config.WorkerPools{p.cfg.Workers[at]}
	cfg.Workers[0].Replicas = to
	cluster, err := capi.Get(ctx, manager, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	choices, err := pools.Choose(ctx, cfg, p.tools, capi.Text(cluster, "spec", "hcloudNetwork", "networkZone"))
	if err != nil {
		return nil, err
	}
	places, err := pools.Places(ctx, cfg, p.tools, manager, choices, cfg.SchematicImage)
	if err != nil {
		return nil, err
	}
	objects, err := render.Workers(cfg, p.sources, p.sources.Vars, places)
	if err != nil {
		return nil, err
	}
	return p.missing(ctx, manager, objects)
}

// missing are those of the rendered objects that the cluster does not have. MachineDeployments that it has must name
// the same templates.
func (p Pool) missing(ctx context.Context, manager *kube.Cluster, objects []*unstructured.Unstructured) (
	missing []*unstructured.Unstructured, err error) {
	for _, o := range objects {
		live, err := capi.Get(ctx, manager, p.cfg.Namespace, o.GroupVersionKind(), o.GetName())
		switch {
		case kube.Absent(err):
			missing = append(missing, o)
			continue
		case err != nil:
			return nil, err
		case o.GroupVersionKind().GroupKind() != capi.MachineDeploymentKind.GroupKind():
			continue
		}
		var differs []string
		for _, path := range []string{"version", "failureDomain", "infrastructureRef.name", "bootstrap.configRef.name"} {
			fields := append([]string{"spec", "template", "spec"}, strings.Split(path, ".")...)
			if has, wants := capi.Text(live, fields...), capi.Text(o, fields...); has != wants {
				differs = append(differs, fmt.Sprintf("%s %s → %s", path, has, wants))
			}
		}
		if len(differs) > 0 {
			return nil, p.refused("it needs a further placement group, and its servers would be unlike the others, because the "+
				"pool is configured differently now (%s): %s says what that changes, and %s does it", strings.Join(differs, ", "),
				p.tools.Command("plan"), p.tools.Command("bootstrap"))
		}
	}
	return missing, nil
}

// setMaxUnhealthy keeps how many servers the health check may replace at once in proportion, where it is what Slipway
// has written.
func (p Pool) setMaxUnhealthy(ctx context.Context, manager *kube.Cluster, d Deployment) error {
	check, err := capi.Get(ctx, manager, p.cfg.Namespace, capi.MachineHealthCheckKind, d.Name)
	if kube.Absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	was, is := int64(render.MaxUnhealthy(d.From)), int64(render.MaxUnhealthy(d.To))
	if capi.Number(check, "spec", "maxUnhealthy") != was || was == is {
		return nil
	}
	patch := fmt.Sprintf(`{"spec":{"maxUnhealthy":%d}}`, is)
	if err := manager.Patch(ctx, check, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return fmt.Errorf("set spec.maxUnhealthy of %s: %w", kube.Describe(check), err)
	}
	return nil
}

// surplus are the objects of parts of the pool that are not needed for a number of servers.
func (p Pool) surplus(ctx context.Context, manager *kube.Cluster, replicas int) (all []unstructured.Unstructured,
	err error) {
	live, err := changes.ReadLiveObjects(ctx, manager, p.cfg.Namespace, p.cfg.ClusterName, nil)
	if err != nil {
		return nil, err
	}
	needed, _, _ := p.wanted(replicas)
	for _, o := range live.Others {
		name := o.GetName()
		if isTemplate(&o) {
			name = changes.WithoutHash(name)
		}
		if o.GetLabels()[capi.WorkerPoolLabel] == p.name && o.GetDeletionTimestamp() == nil && p.isPart(name) &&
			!slices.Contains(needed, name) {
			all = append(all, o)
		}
	}
	return all, nil
}

// isPart tells whether a name is that of a further part of the pool: k8s-general-2.
func (p Pool) isPart(name string) bool {
	number, found := strings.CutPrefix(name, p.cfg.ClusterName+"-"+p.name+"-")
	return found && number != "" && strings.Trim(number, "0123456789") == ""
}

func isTemplate(o *unstructured.Unstructured) bool { return strings.HasSuffix(o.GetKind(), "Template") }

// deleteSurplus deletes the objects of parts that are not needed any more: with their servers, or afterwards their
// templates.
func (p Pool) deleteSurplus(ctx context.Context, say flow.Say, manager *kube.Cluster, replicas int,
	templates bool) error {
	all, err := p.surplus(ctx, manager, replicas)
	if err != nil {
		return err
	}
	for i := range all {
		o := &all[i]
		if isTemplate(o) != templates {
			continue
		}
		say("deleting %s %s", o.GetKind(), o.GetName())
		uid := o.GetUID()
		err := manager.Delete(ctx, o, client.Preconditions{UID: &uid},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !kube.Absent(err) {
			return fmt.Errorf("delete %s: %w", kube.Describe(o), err)
		}
	}
	return nil
}

// tidy takes away what nothing uses after the servers of a part are gone: its placement group and its templates.
func (p Pool) tidy(ctx context.Context, say flow.Say, manager *kube.Cluster, replicas int) error {
	all, err := p.surplus(ctx, manager, replicas)
	if err != nil || len(all) == 0 {
		return err
	}
	_, _, groups := p.wanted(replicas)
	templates := slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() != capi.MachineTemplateKind.GroupKind()
	})
	if err := pools.EnsurePlacementGroups(ctx, say, manager, p.cfg.Namespace, p.cfg.ClusterName, groups, templates); err != nil {
		return err
	}
	return p.deleteSurplus(ctx, say, manager, replicas, true)
}

// awaitWhole waits until the pool has a number of servers, each of them a Ready node, and returns their names.
func (p Pool) awaitWhole(ctx context.Context, say flow.Say, with clusters, replicas int) (names []string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	reader := &rollout.Reader{Cfg: p.cfg, Tools: p.tools, Management: with.manager, Workload: with.workload,
		Pool: p.name}
	w := wait.Wait{What: fmt.Sprintf("%s of worker pool %s", servers(replicas), p.name), Within: p.cfg.NodesTimeout.D(),
		Changes: reader.Changes(watching, capi.MachineDeploymentKind),
		Explain: p.observer.ObstaclesOfWorkers(with.manager, situation.WatchedOf(p.cfg))}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		state, err := reader.ReadWorkers(ctx)
		if err != nil {
			return "", err
		}
		names = capi.ServersOf(state.Machines)
		lacks := append(rollout.Leaving(ctx, with.workload, state.Machines), state.Missing(p.cfg.NetworkCIDR)...)
		asked := 0
		for i := range state.Deployments {
			asked += orders.Replicas(&state.Deployments[i])
		}
		if asked != replicas {
			lacks = append(lacks, fmt.Sprintf("its MachineDeployments ask for %d servers instead of %d", asked, replicas))
		}
		return wait.Sentences(lacks...), nil
	})
	return names, err
}
