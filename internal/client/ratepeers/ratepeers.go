// Package ratepeers lets the runs that work in one Hetzner project know how many they are, so that each keeps to its
// part of the project's rate limit: every run has a Lease in a namespace of a Kubernetes cluster that all of them
// reach.
package ratepeers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// renewEvery is how often a run renews its Lease and looks at those of the others.
	renewEvery = 15 * time.Second
	// expiresAfter is how long a Lease stays as it was until its run counts as dead.
	expiresAfter = time.Minute
	// askWithin bounds what is asked of the cluster each time. A run waits for the first of them.
	askWithin = 5 * time.Second

	namePrefix   = "slipway-rate-"
	projectLabel = "slipway.dev/rate-project"
)

// Project names a Hetzner project by one of its tokens. The API has no name for it, so runs with different tokens of
// one project do not find one another. Tokens are random, and cannot be found by their hash.
func Project(token string) string {
	sum := sha256.Sum256([]byte("slipway-rate:" + token))
	return hex.EncodeToString(sum[:])[:16]
}

// Peers is a run among those of its Hetzner project. A nil one is alone.
type Peers struct {
	leases  typed.LeaseInterface
	project string
	holder  string
	name    string // of this run's Lease
	written string // the resource version that this run gave it last
	say     func(format string, args ...any)
	stop    context.CancelFunc
	ended   chan struct{}

	runs   atomic.Int64
	seen   map[string]sign // of the other runs, by the name of their Lease
	listed time.Time       // when they were looked at last
	told   bool            // that the cluster cannot be asked
}

// sign is what tells that a run lives: any write changes the version.
type sign struct {
	version string
	since   time.Time // by this machine's clock
}

// Join gives the run a Lease, which it keeps until Leave. The client needs to list, create, update and delete Leases in
// its namespace; where it cannot, say gets one message, and the run goes on with what it knew last, in the beginning
// that it is alone. say also gets a message for each change of the number of runs. A cluster has one run at a time: a
// run takes over the Lease that a killed run of its cluster has left. holder is who runs, for people.
func Join(ctx context.Context, leases typed.LeaseInterface, project, cluster, holder string,
	say func(format string, args ...any)) *Peers {
	p := newPeers(leases, project, cluster, holder, say)
	ctx, p.stop = context.WithCancel(ctx)
	p.look(ctx)
	go func() {
		defer close(p.ended)
		tick := time.Tick(renewEvery)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				p.look(ctx)
			}
		}
	}()
	return p
}

func newPeers(leases typed.LeaseInterface, project, cluster, holder string,
	say func(format string, args ...any)) *Peers {
	p := &Peers{leases: leases, project: project, holder: holder, name: namePrefix + project + "-" + cluster,
		say: say, stop: func() {}, ended: make(chan struct{}), seen: map[string]sign{}}
	p.runs.Store(1)
	return p
}

// Runs is how many runs are at work in the project, this one among them. It does not wait.
func (p *Peers) Runs() int {
	if p == nil {
		return 1
	}
	return int(p.runs.Load())
}

// Leave deletes the run's Lease, unless another run has taken it over. Where it cannot, the others do once it has
// expired.
func (p *Peers) Leave(ctx context.Context) {
	if p == nil {
		return
	}
	p.stop()
	<-p.ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
	defer cancel()
	_ = p.leases.Delete(ctx, p.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &p.written}})
}

// look renews the run's Lease, counts those of the project and removes those that have expired.
func (p *Peers) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	list, err := p.leases.List(asking, metav1.ListOptions{LabelSelector: projectLabel + "=" + p.project})
	if err != nil {
		p.cannot(ctx, "list Leases", err)
		return
	}
	own, alive := p.sort(asking, list.Items)
	p.count(alive + 1)
	if err := p.renew(asking, own); err != nil {
		p.cannot(ctx, "write Lease "+p.name, err)
	}
}

// sort finds the run's own Lease, nil where there is none, counts those of runs that live, and removes the others.
func (p *Peers) sort(ctx context.Context, all []coordinationv1.Lease) (own *coordinationv1.Lease, alive int) {
	now, was := time.Now(), p.seen
	// While this run could not look, it has not seen the others renew theirs.
	blind := now.Sub(p.listed) > expiresAfter/2
	p.seen, p.listed = make(map[string]sign, len(all)), now
	for i, lease := range all {
		if lease.Name == p.name {
			own = &all[i]
			continue
		}
		is, known := was[lease.Name]
		if !known || blind || is.version != lease.ResourceVersion {
			is = sign{lease.ResourceVersion, now}
		}
		p.seen[lease.Name] = is
		if now.Sub(is.since) < expiresAfter || !p.remove(ctx, lease) {
			alive++
		}
	}
	return own, alive
}

// remove deletes the Lease of a dead run as it was seen: false means that the run has renewed it meanwhile. One that
// cannot be deleted does not count either; who can deletes it.
func (p *Peers) remove(ctx context.Context, lease coordinationv1.Lease) bool {
	err := p.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}})
	return !apierrors.IsConflict(err)
}

// renew writes the run's Lease; own is the one that was seen. Another run removes it where this one stood still for
// long, and it is created again.
func (p *Peers) renew(ctx context.Context, own *coordinationv1.Lease) error {
	now, seconds := metav1.NewMicroTime(time.Now()), int32(expiresAfter/time.Second)
	if own != nil {
		if own.Spec.HolderIdentity == nil || *own.Spec.HolderIdentity != p.holder {
			own.Spec.HolderIdentity, own.Spec.AcquireTime = &p.holder, &now
		}
		own.Spec.RenewTime = &now
		updated, err := p.leases.Update(ctx, own, metav1.UpdateOptions{})
		if err == nil {
			p.written = updated.ResourceVersion
		}
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // the next look has it as it is
		}
		return err
	}
	created, err := p.leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: map[string]string{projectLabel: p.project,
			"app.kubernetes.io/managed-by": "slipway"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &p.holder, LeaseDurationSeconds: &seconds, AcquireTime: &now,
			RenewTime: &now},
	}, metav1.CreateOptions{})
	if err == nil {
		p.written = created.ResourceVersion
	}
	if apierrors.IsAlreadyExists(err) { // a request that failed may have been done all the same
		return nil
	}
	return err
}

// count keeps how many runs there are, and says when that changes.
func (p *Peers) count(runs int) {
	was := p.runs.Swap(int64(runs))
	switch {
	case was == int64(runs):
	case runs == 1:
		p.say("no other run of this Hetzner project is at work any more: this one takes the whole rate limit")
	default:
		p.say("%d runs of this Hetzner project are at work: each takes %s of the rate limit", runs, part(runs))
	}
}

// part is the part of one of so many.
func part(of int) string {
	switch of {
	case 2:
		return "half"
	case 3:
		return "a third"
	case 4:
		return "a quarter"
	}
	return fmt.Sprintf("1/%d", of)
}

// cannot says once that the other runs are not known. The end of the run is no reason to.
func (p *Peers) cannot(ctx context.Context, do string, err error) {
	if p.told || ctx.Err() != nil {
		return
	}
	p.told = true
	if status := (apierrors.APIStatus)(nil); errors.As(err, &status) && apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w (the role needs list, create, update and delete of leases.coordination.k8s.io there)", err)
	}
	as := "as if it were alone"
	if runs := p.Runs(); runs > 1 {
		as = fmt.Sprintf("as one of %d", runs)
	}
	p.say("the runs of this Hetzner project do not know of one another, and may exceed its rate limit: %s in the cluster "+
		"of the state: %v; this run continues %s", do, err, as)
}
