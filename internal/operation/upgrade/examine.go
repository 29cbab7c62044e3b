package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// poolChanges are what an upgrade does to the worker pools.
type poolChanges struct {
	texts []string
	// replicas are the numbers of servers that the pools have, which an upgrade keeps.
	replicas map[string]int
	// left is what else of the pools is not as it is configured, which an upgrade leaves.
	left []string
	// unanswered is why that is not known; empty: it is.
	unanswered string
}

// keepReplicas are worker pools with the numbers of servers that the cluster has. One that it does not have is left
// out: an upgrade creates none.
func keepReplicas(configured config.WorkerPools, live map[string]int) (kept config.WorkerPools) {
	for _, p := range configured {
		n, exists := live[p.Name]
		if !exists {
			continue
		}
		if !p.Autoscaled() {
			p.Replicas = n
		}
		kept = append(kept, p)
	}
	return kept
}

// pools says what the new versions do to the pools.
func (e *environment) pools(ctx context.Context, c clusters) (p poolChanges, err error) {
	deployments, templates, err := pools.Live(ctx, c.manager, e.cfg.Namespace, e.cfg.ClusterName)
	if err != nil || len(e.cfg.Workers)+len(deployments)+len(templates) == 0 {
		return p, err
	}
	p.replicas = map[string]int{}
	for i := range deployments {
		p.replicas[deployments[i].GetLabels()[capi.WorkerPoolLabel]] += orders.Replicas(&deployments[i])
	}
	e.cfg.Workers = keepReplicas(e.cfg.Workers, p.replicas)
	all, kept, err := e.newVersionsOf(ctx, c.manager)
	if err != nil {
		return p, err
	}
	found, err := e.consequencesOf(ctx, c.manager, all)
	if err != nil {
		return p, err
	}
	for _, one := range found {
		p.texts = append(p.texts, one.String())
	}
	p.left = kept
	if left, err := e.otherChanges(ctx, c.manager, all); err != nil {
		p.unanswered = "what else of the worker pools is not as it is configured: " + err.Error()
	} else {
		p.left = append(p.left, left...)
	}
	return p, nil
}

// refuse says why the upgrade is not to begin. Checks that could not be made are returned by themselves.
func (e *environment) refuse(ctx context.Context, c clusters, now state, x Examination, o Options) (unanswered []string,
	err error) {
	if !x.Servers() && !x.InPlace {
		return nil, nil
	}
	var why []string
	if now.replicas%2 == 0 {
		why = append(why, fmt.Sprintf("the control plane has %d servers, an even number, of which one fewer may fail than of "+
			"one more: run %s or %s first", now.replicas, e.tools.Command("scale", "control-plane", fmt.Sprint(now.replicas-1)),
			e.tools.Command("scale", "control-plane", fmt.Sprint(now.replicas+1))))
	}
	_, talosChanges := change(x.From, x.To, talos)
	if talosChanges && e.cfg.ImageName != "" && e.cfg.ImageName == now.observed.Image() {
		why = append(why, fmt.Sprintf("IMAGE_NAME=%s is the image of the servers that there are: set it to that of Talos %s, or "+
			"leave it out", e.cfg.ImageName, x.To[talos]))
	}
	if len(now.view.lacks) > 0 && !o.Resumes && now.rolling == "" {
		why = append(why, fmt.Sprintf("the control plane is not whole: %s; repair that first (%s)",
			strings.Join(now.view.lacks, "; "), e.tools.Command("status")))
	}
	budgets, err := rollout.BlockingBudgets(ctx, c.workload, capi.ServersOf(now.view.machines))
	switch {
	case err != nil:
		unanswered = append(unanswered, "whether a PodDisruptionBudget keeps a server from being drained: "+err.Error())
	case len(budgets) > 0 && !o.Resumes && (x.Servers() || talosChanges): // else no node is drained
		why = append(why, rollout.Undrainable(budgets))
	}
	if before, after := parsed(x.From[kubernetes]), parsed(x.To[kubernetes]); after.Minor > before.Minor {
		apis, err := removedAPIs(ctx, c.workload, now.replicas, after.Minor)
		switch {
		case err != nil:
			unanswered = append(unanswered, "which removed APIs are in use: "+err.Error())
		case len(apis) > 0 && !o.Resumes:
			why = append(why, fmt.Sprintf("clients have asked for APIs that Kubernetes %s does not serve: %s; have them use "+
				"newer ones (the audit log has who asks), then replace or restart the API servers, which count since their start",
				x.To[kubernetes], sentenceOf(apis)))
		}
	}
	if len(why) > 0 {
		return unanswered, &RefusedError{why}
	}
	return unanswered, nil
}

func sentenceOf(apis []removedAPI) string {
	var all []string
	for _, a := range apis {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
}

const (
	// metric is the API servers' own: 1 for each deprecated API that was asked for since the API server started
	// (k8s.io/apiserver/pkg/endpoints/metrics).
	metric = "apiserver_requested_deprecated_apis"
	path   = "/metrics"
	// most is above the some 2 MiB that an API server with many kinds tells.
	most = 64 << 20
	// connections for each API server. A load balancer that goes round reaches each of them with far fewer; other
	// clients take their turns in between.
	connections = 4
)

// removedAPI is a deprecated API that was asked for.
type removedAPI struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Removed  string `json:"removed"` // the minor of Kubernetes that serves it no more: "1.33"
}

// String is "flowschemas of flowcontrol.apiserver.k8s.io/v1beta3 (removed in Kubernetes 1.32)".
func (a removedAPI) String() string {
	group := a.Version
	if a.Group != "" {
		group = a.Group + "/" + a.Version
	}
	return fmt.Sprintf("%s of %s (removed in Kubernetes 1.%d)", a.Resource, group, a.minor())
}

// minor of Kubernetes 1.x; 0: the metric names none.
func (a removedAPI) minor() uint64 {
	_, minor, _ := strings.Cut(a.Removed, ".")
	n, _ := strconv.ParseUint(minor, 10, 64)
	return n
}

// removedAPIs lists the APIs that clients have asked the API servers for and that Kubernetes 1.minor does not serve.
// servers is how many API servers there are: each is asked through the load balancer, by connections of its own.
func removedAPIs(ctx context.Context, c *kube.Cluster, servers int, minor uint64) ([]removedAPI, error) {
	var found []removedAPI
	for range max(1, servers) * connections {
		text, err := c.GetAnew(ctx, path, most)
		if err != nil {
			return nil, fmt.Errorf("ask an API server for its metrics: %w", err)
		}
		asked, err := requested(text)
		if err != nil {
			return nil, err
		}
		for _, a := range asked {
			if is := a.minor(); is != 0 && is <= minor && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}
	slices.SortFunc(found, func(a, b removedAPI) int { return cmp.Compare(a.String(), b.String()) })
	return found, nil
}

// requested reads the deprecated APIs out of an API server's metrics.
func requested(text []byte) ([]removedAPI, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read an API server's metrics: %w", err)
	}
	var all []removedAPI
	for _, m := range families[metric].GetMetric() {
		if m.GetGauge().GetValue() == 0 {
			continue
		}
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		all = append(all, removedAPI{Group: labels["group"], Version: labels["version"], Resource: labels["resource"],
			Removed: labels["removed_release"]})
	}
	return all, nil
}
