// Package kind provides the management cluster outside the lab: a kind cluster, or one behind a given kubeconfig.
package kind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// Provider makes the management cluster with kind. A kind cluster that a run left partially created is created again.
// One that may hold the only record of a cluster's servers is never deleted, not even when it does not answer.
type Provider struct {
	kind  kindLibrary
	image string // of the node, pinned
	// used reports whether Cluster API was ever installed behind a kubeconfig.
	used  func(ctx context.Context, kubeconfig []byte) (bool, error)
	files platform.Files
	yes   bool // delete without a question what is partially created, and not by this state folder
}

// kindLibrary is what is used of kind. Its calls cannot be cancelled.
type kindLibrary interface {
	clusters() ([]string, error)
	create(name, image, kubeconfigPath string, say flow.Say) error
	remove(name, kubeconfigPath string) error
	kubeconfig(name string) ([]byte, error)
	// initialised reports whether kubeadm got as far as an administrator's
	// kubeconfig on the control plane node. It fails for a node that is stopped.
	initialised(name string) (bool, error)
}

func (k *Provider) Name() string { return "kind" }

// making is the file that exists while this state folder's run creates a cluster. A cluster found together with it is
// most likely partially created; but a run with another state folder may use it, or one of its name, since.
func making(name string) string { return "kind-" + name + ".making" }

// private is the kubeconfig that kind writes beside the one it is asked for, in
// place of the user's own.
func (k *Provider) private(name string) string {
	return k.files.Path("kind-" + name + ".kubeconfig")
}

// Ensure adopts the cluster, or creates it. kind's library cannot be cancelled: when ctx ends during its work, the next
// run finds what it created.
func (k *Provider) Ensure(ctx context.Context, name string, say flow.Say) ([]byte, error) {
	found, err := k.Exists(ctx, name)
	if err != nil {
		return nil, err
	}
	if found {
		usable, err := k.adopt(ctx, name, say)
		if err != nil {
			return nil, err
		}
		if usable {
			if err := k.files.Remove(making(name)); err != nil {
				return nil, err
			}
			return k.kind.kubeconfig(name)
		}
		if err := k.kind.remove(name, k.private(name)); err != nil {
			return nil, fmt.Errorf("delete the partially created kind cluster %s: %w", name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := k.files.Write(making(name), []byte(time.Now().Format(time.RFC3339)+"\n")); err != nil {
		return nil, err
	}
	say("creating kind cluster %s from %s", name, strings.SplitN(k.image, "@", 2)[0])
	if err := k.kind.create(name, k.image, k.private(name), say); err != nil {
		return nil, fmt.Errorf("create kind cluster %s: %w", name, err)
	}
	kubeconfig, err := k.kind.kubeconfig(name)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of kind cluster %s: %w", name, err)
	}
	return kubeconfig, k.files.Remove(making(name))
}

// Look opens a cluster that exists. One that is partially created holds nothing: it is neither created again nor
// deleted.
func (k *Provider) Look(ctx context.Context, name string) ([]byte, error) {
	usable, err := k.adopt(ctx, name, func(string, ...any) {})
	if err != nil || !usable {
		return nil, err
	}
	return k.kind.kubeconfig(name)
}

// adopt reports whether a cluster that exists can be used. False means that it is partially created and may be deleted.
func (k *Provider) adopt(ctx context.Context, name string, say flow.Say) (bool, error) {
	_, err := k.files.Read(making(name))
	marked := err == nil
	whole, err := k.kind.initialised(name)
	switch {
	case err != nil:
		return false, fmt.Errorf("kind cluster %s exists but its node does not answer: %w; "+
			"it may hold the only record of your servers, so it is left alone: start its container (%s-control-plane)",
			name, err, name)
	case whole && marked:
		return k.adoptMarked(ctx, name, say)
	case whole:
		say("adopting kind cluster %s", name)
		return true, nil
	case marked:
		say("kind cluster %s was left partially created by a run that was killed: creating it again", name)
		return false, nil
	case k.yes:
		say("kind cluster %s is partially created: creating it again", name)
		return false, nil
	default:
		return false, fmt.Errorf("kind cluster %s is partially created, and not by a run of this state folder: "+
			"if no other run is creating it now, run again with --yes to delete it and create it again", name)
	}
}

// adoptMarked is for a cluster with a control plane that a run of this state folder began to create. Only one that
// never had Cluster API in it was left by that run.
func (k *Provider) adoptMarked(ctx context.Context, name string, say flow.Say) (bool, error) {
	kubeconfig, err := k.kind.kubeconfig(name)
	used := false
	if err == nil {
		used, err = k.used(ctx, kubeconfig)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("kind cluster %s may be partially created by a run that was killed, or in use since, "+
			"and does not answer: %w; it may hold the only record of your servers, so it is left alone: run again in a minute; "+
			"if you know that it holds nothing: kind delete cluster --name %s", name, err, name)
	case used:
		say("adopting kind cluster %s: Cluster API is in it already", name)
		return true, nil
	}
	say("kind cluster %s was left by a run that was killed before Cluster API was in it: creating it again", name)
	return false, nil
}

// Exists asks kind, that is Docker or the engine in its place.
func (k *Provider) Exists(_ context.Context, name string) (bool, error) {
	names, err := k.kind.clusters()
	if err != nil {
		return false, fmt.Errorf("list kind clusters: %w", err)
	}
	return slices.Contains(names, name), nil
}

func (k *Provider) Delete(_ context.Context, name string) error {
	if err := k.kind.remove(name, k.private(name)); err != nil {
		return fmt.Errorf("delete kind cluster %s: %w", name, err)
	}
	return k.files.Remove(making(name))
}
