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
	p, err := f.toDestroy(ctx, o.Clusters)
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
	if err := f.prepare(ctx, fleet.Destroy, p); err != nil {
		return Result{}, err
	}
	return f.advance(ctx, fleet.Revision(p.Entries()), o.Changed)
}

// toDestroy is what the Jobs that delete clusters are made from: these, or else all that the fleet has changed.
func (f *opened) toDestroy(ctx context.Context, wanted []string) (p fleet.Preparation, err error) {
	changes, err := fleet.LastChanges(ctx, f.management, f.Namespace, f.Name)
	if err != nil {
		return p, err
	}
	known := fleet.Preparation{Changes: changes}.Clusters()
	if len(wanted) == 0 {
		wanted = known
	}
	if p.Secrets, err = f.tokensOf(ctx, wanted); err != nil {
		return p, err
	}
	for _, name := range wanted {
		i := slices.Index(known, name)
		if i < 0 {
			return p, usage.Errorf("fleet %s has changed no cluster %q%s", f.Name, name, usage.DidYouMean("", name, known))
		}
		change, access, err := relocated(f.Namespace, changes[i])
		if err != nil {
			return p, err
		}
		p.Access = append(p.Access, access)
		if change.Image, err = f.destroysWith(ctx, change.Image); err != nil {
			return p, err
		}
		change.Action, change.Arguments, change.Consent = fleet.Destroy, []string{"destroy"}, true
		p.Changes = append(p.Changes, change)
	}
	// Also of clusters that the fleet's file does not have any more.
	identity, err := f.storedIdentity(ctx)
	if err != nil || identity == "" {
		return p, err
	}
	keys, err := f.keySecrets(identity, p.Clusters())
	p.Secrets = append(p.Secrets, keys...)
	return p, err
}

// destroysWith is the image by which a cluster is destroyed: that of its last change. Where an earlier release took
// that by a tag it is the fleet's.
func (f *opened) destroysWith(ctx context.Context, applied string) (string, error) {
	if f.lab != nil || strings.Contains(applied, "@") {
		return applied, nil
	}
	if err := f.pinImage(ctx); err != nil {
		return "", err
	}
	return f.Image, nil
}

// tokensOf are the Secrets with the tokens of clusters that the fleet's file still has, as far as they can be read
// here: a token may be another one than when they were applied.
func (f *opened) tokensOf(ctx context.Context, names []string) ([]*corev1.Secret, error) {
	var clusters []cluster
	for _, name := range names {
		c := f.Find(name)
		if c == nil {
			continue
		}
		if _, err := f.readToken(ctx, c.Token); err != nil {
			f.caller.Note("cluster %s is deleted with the token that it was applied with: %v", name, err)
			continue
		}
		clusters = append(clusters, cluster{Cluster: *c})
	}
	return f.secretsOf(ctx, clusters)
}
