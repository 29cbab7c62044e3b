package operations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// DestroyOptions are the choices of a deletion.
type DestroyOptions struct {
	Clusters []string // only these, which need not be in the file any more

	// Confirm asks for a word before anything is deleted. Required unless Yes is set. Its error ends the deletion.
	Confirm func(ctx context.Context, question, want string) error
	// Changed gets the status of a cluster each time that it has changed. Required.
	Changed func(fleet.ClusterStatus)
}

// Destroy deletes clusters of a fleet, by the configuration that was last applied to each. Where the fleet has none,
// Result.Ended is false.
func Destroy(ctx context.Context, q Request, o DestroyOptions) (Result, error) {
	f, err := readExisting(ctx, q)
	if err != nil {
		return Result{}, err
	}
	p, err := toDestroy(ctx, f, o.Clusters)
	if err != nil || len(p.Changes) == 0 {
		return Result{Fleet: f.Name}, err
	}
	if !f.asked.Yes {
		question := fmt.Sprintf("deletes %d clusters of the management cluster at %s, with their servers, load balancers "+
			"and networks: %s\nType the fleet's name, %s, to delete them: ", len(p.Changes), f.management.Host(),
			strings.Join(p.Clusters(), ", "), f.Name)
		if err := o.Confirm(ctx, question, f.Name); err != nil {
			return Result{}, err
		}
	}
	if f.lab != nil {
		if err := f.lab.ProvideCommand(); err != nil {
			return Result{}, err
		}
	}
	if err := prepare(ctx, f, fleet.Destroy, p); err != nil {
		return Result{}, err
	}
	return advance(ctx, f, fleet.Revision(p.Entries()), o.Changed)
}

// toDestroy is what the Jobs that delete clusters are made from: these, or else all that the fleet has changed.
func toDestroy(ctx context.Context, f *opened, wanted []string) (p fleet.Preparation, err error) {
	known, err := fleet.RolloutClusters(ctx, f.management, f.Namespace, f.Name)
	if err != nil {
		return p, err
	}
	if len(wanted) == 0 {
		wanted = known
	}
	if p.Secrets, err = tokensOf(ctx, f, wanted); err != nil {
		return p, err
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return p, usage.Errorf("fleet %s has changed no cluster %q%s", f.Name, name, usage.DidYouMean("", name, known))
		}
		change, err := fleet.LastChange(ctx, f.management, f.Namespace, f.Name, name)
		if err != nil {
			return p, err
		}
		change, access, err := relocated(f.Namespace, change)
		if err != nil {
			return p, err
		}
		p.Access = append(p.Access, access)
		if change.Image, err = destroysWith(ctx, f, change.Image); err != nil {
			return p, err
		}
		change.Action, change.Arguments, change.Consent = fleet.Destroy, []string{"destroy"}, true
		p.Changes = append(p.Changes, change)
	}
	p.Secrets, err = withKeys(ctx, f, p)
	return p, err
}

// destroysWith is the image by which a cluster is destroyed: that of its last change. Where an earlier release took
// that by a tag it is the fleet's.
func destroysWith(ctx context.Context, f *opened, applied string) (string, error) {
	if f.lab != nil || strings.Contains(applied, "@") {
		return applied, nil
	}
	if err := pinImage(ctx, f); err != nil {
		return "", err
	}
	return f.Image, nil
}

// withKeys are the Secrets of a preparation with the keys to the states of its clusters, also of those that the
// fleet's file does not have any more.
func withKeys(ctx context.Context, f *opened, p fleet.Preparation) ([]*corev1.Secret, error) {
	identity, err := storedIdentity(ctx, f)
	if err != nil || identity == "" {
		return p.Secrets, err
	}
	keys, err := keySecrets(f, identity, p.Clusters())
	return append(p.Secrets, keys...), err
}

// tokensOf are the Secrets with the tokens of clusters that the fleet's file still has, as far as they can be read
// here: a token may be another one than when they were applied.
func tokensOf(ctx context.Context, f *opened, names []string) ([]*corev1.Secret, error) {
	var clusters []cluster
	for _, name := range names {
		c := f.Find(name)
		if c == nil {
			continue
		}
		if _, err := readToken(ctx, f, c.Token); err != nil {
			f.caller.Note("cluster %s is deleted with the token that it was applied with: %v", name, err)
			continue
		}
		clusters = append(clusters, cluster{Cluster: *c})
	}
	return secretsOf(ctx, f, clusters)
}
