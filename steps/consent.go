package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// consent refuses to apply what would delete servers or objects of a cluster that exists, unless the operator
// agreed beforehand. A run that merely lacks an argument of the last one, or does not know what was changed with
// kubectl since, would otherwise shrink the cluster, or replace every server of it. It returns what applying the
// objects does.
func (s *Set) consent(ctx context.Context, say flow.Say, mgmt *kube.Cluster, r *render.Rendered) (
	[]changes.Consequence, error) {
	all, err := changes.ConsequencesInCluster(ctx, s.cfg, s.tools, mgmt, r)
	if err != nil {
		return nil, err
	}
	return all, agreed(s.tools, say, all, func() (string, error) { return keepControlPlane(ctx, s.cfg, mgmt) })
}

// agreed refuses what would delete servers or objects and was not agreed to, and says what is done else. keep is how
// bootstrap.yaml says what the cluster has.
func agreed(tools platform.Tools, say flow.Say, all []changes.Consequence, keep func() (string, error)) error {
	if err := refusal(tools, all, keep); err != nil {
		return err
	}
	for _, c := range all {
		if c.Destructive() {
			say("as agreed, this %s", c)
		} else {
			say("this %s", c)
		}
	}
	return nil
}

// refusals are what steps would refuse, for a run that asks before its first step.
type refusals struct{}

// RefuseApply is the refusal of the step apply, for what applying the manifests does; nil: it refuses nothing.
func (refusals) RefuseApply(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	all []changes.Consequence) error {
	return refusal(tools, all, func() (string, error) { return keepControlPlane(ctx, cfg, manager) })
}

// refusal refuses what cannot be done, and what would delete servers or objects and was not agreed to.
func refusal(tools platform.Tools, all []changes.Consequence, keep func() (string, error)) error {
	if err := errors.Join(refuseImmutable(all), refuseVersions(tools, all)); err != nil {
		return err
	}
	var open, agreed []string
	if tools.Agreed != nil {
		agreed = tools.Agreed()
	}
	putBack := ""
	for _, c := range all {
		if c.Destructive() && !tools.Consent && !slices.Contains(agreed, c.Summary()) {
			open = append(open, c.String())
			if c.Effect == changes.EffectDeletes {
				putBack = ", and put back what left the manifests"
			}
		}
	}
	if len(open) > 0 {
		values, err := keep()
		if err != nil {
			return err
		}
		return fmt.Errorf("the cluster exists, and applying the manifests as they are configured now %s: "+
			"to keep the cluster as it is, set its values in bootstrap.yaml (%s)%s; "+
			"to have it changed, run again with --yes", strings.Join(open, "; "), values, putBack)
	}
	return nil
}

// refuseImmutable refuses to change fields that the API server does not let change.
func refuseImmutable(all []changes.Consequence) error {
	var fields []string
	for _, c := range all {
		if c.Effect == changes.EffectImmutable {
			fields = append(fields, c.String())
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the field is immutable, so nothing is applied; set the live value again to keep this "+
		"cluster; only a new cluster (another CLUSTER_NAME), or for a template another name, can have another value",
		strings.Join(fields, "; "))
}

// refuseVersions refuses what no control plane survives, also with consent.
func refuseVersions(tools platform.Tools, all []changes.Consequence) error {
	for _, c := range all {
		if c.Refused != "" {
			return fmt.Errorf("applying the manifests as they are configured now %s, which is not done: %s; set "+
				"kubernetesVersion to what the cluster has, or run %s, which goes up one minor version after another", c, c.Refused,
				tools.Command("upgrade"))
		}
	}
	return nil
}

// keepControlPlane is how bootstrap.yaml says what the live control plane has.
func keepControlPlane(ctx context.Context, cfg config.Config, manager *kube.Cluster) (string, error) {
	live, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("controlPlaneReplicas: %d, kubernetesVersion: %s, talosVersion: %s, and what else is named here",
		capi.Number(live, "spec", "replicas"), capi.Text(live, "spec", "version"),
		capi.Text(live, "spec", "controlPlaneConfig", "controlplane", "talosVersion")), nil
}
