package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// Recorded tells the doctor of the placement group that the step reserve recorded, 0 meaning none, so that it sees a
// token of another project.
func (d *Doctor) Recorded(placementGroup int64) *Doctor {
	d.recorded = placementGroup
	return d
}

// SelfManaged tells the doctor whether the cluster has passed its pivot, so that it needs no management cluster any
// more.
func (d *Doctor) SelfManaged(is bool) *Doctor {
	d.selfManaged = is
	return d
}

// project says what is in it, so that the operator notices a wrong one: the API does not name the project.
func (d *Doctor) project(ctx context.Context) Finding {
	inventory, err := hetzner.TakeInventory(ctx, d.tools.Hetzner)
	if err != nil {
		return unheard(err)
	}
	counts, ours := map[string]int{}, 0
	for _, r := range inventory.Resources {
		if r.Cluster == d.cfg.ClusterName {
			ours++
		} else if r.Cluster != "" {
			counts[r.Cluster]++
		}
	}
	var others []string
	for name, n := range counts {
		others = append(others, fmt.Sprintf("%d of cluster %s", n, name))
	}
	slices.Sort(others)
	if d.recorded != 0 && ours == 0 {
		return failed("use the token of the project that the cluster is in; if all of it was deleted by hand, use "+
			"--skip-doctor, or another --state-dir",
			"this state folder created cluster %s in a project that has placement group %d, and the token's project has "+
				"neither that nor anything else of the cluster: it is another project",
			d.cfg.ClusterName, d.recorded)
	}
	text := "it holds nothing of other clusters"
	if len(others) > 0 {
		text = "it also holds resources: " + strings.Join(others, ", ")
	}
	return ok("%d resources of cluster %s are in the token's project (the API does not return its name); %s", ours,
		d.cfg.ClusterName, text)
}

// reservation asks whether the cluster of this name is this state folder's to make, as the step reserve will.
func (d *Doctor) reservation(ctx context.Context) Finding {
	cluster := d.cfg.ClusterName
	found, err := hetzner.ClusterClaim(cluster).Find(ctx, d.tools.Hetzner)
	var foreign *hetzner.ForeignError
	switch {
	case errors.As(err, &foreign):
		return failed("rename or delete it, or choose another CLUSTER_NAME", "%v", err)
	case err != nil:
		return unheard(err)
	}
	identity, err := d.tools.Files.Read(ownership.IdentityFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unknown("look at the state folder", "this state folder's identity cannot be read: %v", err)
	}
	if found != nil && found.By == strings.TrimSpace(string(identity)) {
		return ok("this state folder has the name %s (placement group %d)", cluster, found.ID)
	}
	traces, err := hetzner.Traces(ctx, d.tools.Hetzner, cluster)
	if err != nil {
		return unheard(err)
	}
	if found == nil && len(traces) == 0 {
		return ok("the name %s is free in the project", cluster)
	}
	whose := fmt.Sprintf("%d resources of a cluster %s are in the project, which this state folder did not create",
		len(traces), cluster)
	if found != nil {
		whose = fmt.Sprintf("the name %s is another state folder's in the project: %s", cluster, found.By)
		if found.Host != "" {
			whose += " on host " + found.Host
		}
		whose += ", since " + found.Since.UTC().Format(time.DateOnly)
	}
	if d.leadsToManagement(ctx) {
		return unknown("the step reserve asks the management cluster whether it is its own, before anything is created", "%s",
			whose)
	}
	return failed("work with the state folder that created it (--state-dir), or its management cluster "+
		"(MANAGEMENT_KUBECONFIG), or choose another CLUSTER_NAME", "%s", whose)
}

// leadsToManagement reports whether a cluster that may hold this one's objects can be asked.
func (d *Doctor) leadsToManagement(ctx context.Context) bool {
	for _, file := range []string{platform.ManagementKubeconfig, platform.Kubeconfig} {
		if _, err := d.tools.Files.Read(file); err == nil {
			return true
		}
	}
	exists, err := d.tools.Management.Exists(ctx, d.cfg.ManagementName())
	return exists || err != nil
}
