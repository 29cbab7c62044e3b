// Package kind provides the management cluster outside the lab: a kind cluster, or one behind a given kubeconfig.
package kind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Provider makes the management cluster with kind. A kind cluster that a run left partially created is created again.
// One that may hold the only record of a cluster's servers is never deleted, not even when it does not answer, and
// neither is one that this state folder did not create.
type Provider struct {
	kind  kindLibrary
	image string // of the node, pinned
	// used reports whether Cluster API was ever installed behind a kubeconfig.
	used  func(ctx context.Context, kubeconfig []byte) (bool, error)
	files platform.Files
	yes   bool // the operator agrees to use a cluster that this state folder did not create
	// effects writes down what kind creates and deletes; nil: nothing does.
	effects *effect.Recorder
}

// kindLibrary is what is used of kind. Its calls cannot be cancelled.
type kindLibrary interface {
	clusters() ([]string, error)
	// create marks what it creates with the identity of the state folder. Where it fails, what it created stays.
	create(name, image, kubeconfigPath, identity string, say flow.Say) error
	remove(name, kubeconfigPath string) error
	kubeconfig(name string) ([]byte, error)
	engine(ctx context.Context) (engine, error)
	// containers are the cluster's nodes.
	containers(name string) ([]container, error)
	// initialised reports whether kubeadm got as far as an administrator's
	// kubeconfig on the control plane node. It fails for a node that is stopped.
	initialised(name string) (bool, error)
}

func (k *Provider) Name() string { return "kind" }

// making is the file that exists while this state folder's run creates a cluster. A cluster of this state folder that
// is found together with it is most likely partially created; but a later run may use it since.
func making(name string) string { return "kind-" + name + ".making" }

// private is the file that kind writes a kubeconfig to, beside the one it is asked for, in place of the user's own.
func private(name string) string { return "kind-" + name + ".kubeconfig" }

// Ensure adopts the cluster, or creates it. kind's library cannot be cancelled: when ctx ends during its work, the next
// run finds what it created.
func (k *Provider) Ensure(ctx context.Context, name string, say flow.Say) ([]byte, error) {
	found, err := k.Exists(ctx, name)
	if err != nil {
		return nil, err
	}
	if found {
		is, err := k.look(name)
		if err != nil {
			return nil, err
		}
		usable, err := k.adopt(ctx, name, is, say)
		if err != nil {
			return nil, err
		}
		if usable {
			if err := errors.Join(k.keep(ctx, is.other), k.files.Remove(making(name))); err != nil {
				return nil, err
			}
			return k.kind.kubeconfig(name)
		}
		if err := k.remove(name); err != nil {
			return nil, fmt.Errorf("delete the partially created kind cluster %s: %w", name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := k.files.Write(making(name), []byte(time.Now().Format(time.RFC3339)+"\n")); err != nil {
		return nil, err
	}
	identity, err := ownership.Identity(platform.Tools{Files: k.files})
	if err != nil {
		return nil, err
	}
	if err := k.keep(ctx, nil); err != nil {
		return nil, err
	}
	say("creating kind cluster %s from %s", name, strings.SplitN(k.image, "@", 2)[0])
	err = k.effects.Do(context.Background(), effect.Kind, "create", "clusters/"+name, func() error {
		return k.kind.create(name, k.image, k.files.Path(private(name)), identity, say)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create kind cluster %s: %w", name, err), k.discard(name))
	}
	kubeconfig, err := k.kind.kubeconfig(name)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of kind cluster %s: %w", name, err)
	}
	return kubeconfig, k.files.Remove(making(name))
}

// discard deletes what a creation that failed has left, and then its mark: it would make a cluster that comes later
// look like what was left. A cluster of that name that came meanwhile stays.
func (k *Provider) discard(name string) error {
	if err := k.remove(name); err != nil && !errors.Is(err, steps.ErrNotOurs) {
		return fmt.Errorf("delete what is left of kind cluster %s, which the next run tries again: %w", name, err)
	}
	return k.files.Remove(making(name))
}

// remove deletes a cluster that this state folder created, and the kubeconfig that kind wrote. It refuses any other.
func (k *Provider) remove(name string) error {
	there, other, err := k.nodes(name)
	switch {
	case err != nil:
		return err
	case other != nil:
		return fmt.Errorf("%s: %w", other, steps.ErrNotOurs)
	case there:
		err := k.effects.Do(context.Background(), effect.Kind, "delete", "clusters/"+name, func() error {
			return k.kind.remove(name, k.files.Path(private(name)))
		})
		if err != nil {
			return err
		}
	}
	return k.files.Remove(private(name)) // kind leaves it, empty
}

// Look opens a cluster that exists, whoever created it. One that is partially created holds nothing: it is neither
// created again nor deleted.
func (k *Provider) Look(ctx context.Context, name string) ([]byte, error) {
	is, err := k.look(name)
	switch {
	case err != nil || !is.whole:
		return nil, err
	case is.other == nil && is.marked:
		if usable, err := k.adoptMarked(ctx, name, func(string, ...any) {}); err != nil || !usable {
			return nil, err
		}
	}
	return k.kind.kubeconfig(name)
}

// Adoptable implements platform.Adopter.
func (k *Provider) Adoptable(ctx context.Context, name string) error {
	is, err := k.look(name)
	if err == nil {
		_, err = k.adopt(ctx, name, is, func(string, ...any) {})
	}
	return err
}

// state is what is seen of a cluster that exists.
type state struct {
	whole  bool       // kubeadm got through
	marked bool       // a run of this state folder began to create a cluster, and did not finish
	other  *container // that this state folder did not create; nil: it created the cluster
}

func (k *Provider) look(name string) (is state, err error) {
	if is.whole, err = k.kind.initialised(name); err != nil {
		return is, fmt.Errorf("kind cluster %s exists but its node does not answer: %w; "+
			"it may hold the only record of your servers, so it is left alone: start its container (%s-control-plane)",
			name, err, name)
	}
	_, err = k.files.Read(making(name))
	is.marked = err == nil
	_, is.other, err = k.nodes(name)
	return is, err
}

// adopt reports whether a cluster that exists can be used. False means that this state folder created it, partially. It
// changes nothing.
func (k *Provider) adopt(ctx context.Context, name string, is state, say flow.Say) (bool, error) {
	switch {
	case is.other != nil && !is.whole:
		return false, fmt.Errorf("kind cluster %s is partially created, and not by this state folder, which does not "+
			"delete it (%s): if no other run is creating it now, kind delete cluster --name %s, and run again", name, is.other,
			name)
	case is.other != nil:
		if err := k.checkOther(name, is.other); err != nil {
			return false, err
		}
		say("adopting kind cluster %s, which this state folder did not create (%s) and will not delete", name, is.other)
		return true, nil
	case is.whole && is.marked:
		return k.adoptMarked(ctx, name, say)
	case is.whole:
		say("adopting kind cluster %s", name)
		return true, nil
	}
	say("kind cluster %s was left partially created by a run that was killed: creating it again", name)
	return false, nil
}

// checkOther returns nil where a cluster that this state folder did not create may be used: the operator has agreed to
// use it, now or earlier.
func (k *Provider) checkOther(name string, other *container) error {
	record, err := recordIn(k.files)
	if err != nil || k.yes || record.Adopted != "" && record.Adopted == other.ID {
		return err
	}
	return fmt.Errorf("kind cluster %s exists, and this state folder did not create it (%s): to use it as management "+
		"cluster all the same, run again with --yes; it is never deleted. Where it is of no use, kind delete cluster "+
		"--name %s; where another person or program uses it, choose another CLUSTER_NAME", name, other, name)
}

// keep records the engine that the cluster is in, and the container that is used with consent; nil: this state folder
// created the cluster.
func (k *Provider) keep(ctx context.Context, other *container) error {
	engine, err := k.kind.engine(ctx)
	if err != nil {
		return err
	}
	adopted := ""
	if other != nil {
		adopted = other.ID
	}
	return ownership.Update(k.files, func(r *ownership.Record) {
		if r.Management != nil {
			r.Management.Engine, r.Management.Adopted = engine.name, adopted
		}
	})
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

// Created implements management.Creator.
func (k *Provider) Created(_ context.Context, name string) (bool, error) {
	_, other, err := k.nodes(name)
	return other == nil, err
}

// Exists asks kind, that is Docker or the engine in its place.
func (k *Provider) Exists(_ context.Context, name string) (bool, error) {
	names, err := k.kind.clusters()
	if err != nil {
		return false, fmt.Errorf("list kind clusters: %w", err)
	}
	return slices.Contains(names, name), nil
}

// Delete deletes a cluster that this state folder created. For any other its error wraps steps.ErrNotOurs.
func (k *Provider) Delete(_ context.Context, name string) error {
	if err := k.remove(name); err != nil {
		return fmt.Errorf("delete kind cluster %s: %w", name, err)
	}
	return k.files.Remove(making(name))
}
