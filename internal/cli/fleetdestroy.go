package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// runFleetDestroy deletes clusters of a fleet, by the configuration that was last applied to each.
func runFleetDestroy(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return err
	}
	if err := f.openExisting(ctx); err != nil {
		return err
	}
	known, err := fleet.RolloutClusters(ctx, f.management, f.Namespace, f.Name)
	if err != nil {
		return err
	}
	wanted := o.Clusters
	if len(wanted) == 0 {
		wanted = known
	}
	var p fleet.Preparation
	if p.Secrets, err = f.tokensOf(ctx, wanted); err != nil {
		return err
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return usage.Errorf("fleet %s has changed no cluster %q%s", f.Name, name, usage.DidYouMean("", name, known))
		}
		change, err := fleet.LastChange(ctx, f.management, f.Namespace, f.Name, name)
		if err != nil {
			return err
		}
		change, access, err := f.relocated(change)
		if err != nil {
			return err
		}
		p.Access = append(p.Access, access)
		if change.Image, err = f.destroysWith(ctx, change.Image); err != nil {
			return err
		}
		change.Action, change.Arguments, change.Consent = fleet.Destroy, []string{"destroy"}, true
		p.Changes = append(p.Changes, change)
	}
	if p.Secrets, err = f.withKeys(ctx, p); err != nil {
		return err
	}
	if len(p.Changes) == 0 {
		fmt.Fprintf(c.stdout, "fleet %s has no clusters: nothing was done\n", f.Name)
		return nil
	}
	if !a.Options.Yes {
		fmt.Fprintf(questions(c), "deletes %d clusters of the management cluster at %s, with their servers, load balancers and "+
			"networks: %s\n", len(p.Changes), f.management.Host(), strings.Join(wanted, ", "))
		if err := confirm(ctx, c, fmt.Sprintf("Type the fleet's name, %s, to delete them: ", f.Name), f.Name); err != nil {
			return err
		}
	}
	if f.lab != nil {
		if err := f.lab.ProvideCommand(); err != nil {
			return err
		}
	}
	if err := f.prepare(ctx, fleet.Destroy, p); err != nil {
		return err
	}
	return advanceFleet(ctx, c, a, f.management, fleet.Rollout{Fleet: f.Name, Namespace: f.Namespace},
		fleet.Revision(p.Entries()))
}

// destroysWith is the image by which a cluster is destroyed: that of its last change. Where an earlier release took
// that by a tag it is the fleet's.
func (f *openedFleet) destroysWith(ctx context.Context, applied string) (string, error) {
	if f.lab != nil || strings.Contains(applied, "@") {
		return applied, nil
	}
	if err := f.pinImage(ctx); err != nil {
		return "", err
	}
	return f.Image, nil
}

// withKeys are the Secrets of a preparation with the keys to the states of its clusters, also of those that the
// fleet's file does not have any more.
func (f *openedFleet) withKeys(ctx context.Context, p fleet.Preparation) ([]*corev1.Secret, error) {
	identity, err := f.storedIdentity(ctx)
	if err != nil || identity == "" {
		return p.Secrets, err
	}
	var names []string
	for _, change := range p.Changes {
		names = append(names, change.Cluster)
	}
	keys, err := f.keySecrets(identity, names)
	return append(p.Secrets, keys...), err
}

// tokensOf are the Secrets with the tokens of clusters that the fleet's file still has, as far as they can be read
// here: a token may be another one than when they were applied.
func (f *openedFleet) tokensOf(ctx context.Context, names []string) ([]*corev1.Secret, error) {
	var clusters []fleetCluster
	for _, name := range names {
		c := f.Find(name)
		if c == nil {
			continue
		}
		if _, err := f.token(ctx, c.Token); err != nil {
			tell(f.console, "cluster %s is deleted with the token that it was applied with: %v", name, err)
			continue
		}
		clusters = append(clusters, fleetCluster{Cluster: *c})
	}
	return f.secrets(ctx, clusters)
}
