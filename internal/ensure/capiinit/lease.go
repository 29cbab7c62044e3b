package capiinit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// LeaseName names the Lease in namespace kube-system that a run holds while it installs or upgrades the providers of a
// management cluster, which runs of other clusters may share.
const LeaseName = "slipway-providers"

// How a Lease is held. Its holder renews it several times before it expires, and one that was killed delays others by
// leaseFor at most.
const (
	leaseFor    = 20 * time.Second
	renewEvery  = 4 * time.Second
	askEvery    = time.Second
	leaseAnswer = 3 * time.Second // to one request of the holder
)

// LeaseWait is the wait for other runs that install or upgrade the providers in the same management cluster.
func LeaseWait(cfg config.Config) flow.Wait {
	return flow.Wait{For: "another run to end its installation of the providers (PROVIDERS_TIMEOUT)",
		Within: cfg.ProvidersTimeout.D()}
}

// errLeaseLost ends a change whose Lease could not be renewed, because another run may begin one.
var errLeaseLost = errors.New("the lease of the providers (Lease kube-system/" + LeaseName + ") was lost: it could not be " +
	"renewed in time; run again")

// exclusively changes the providers of a cluster while no other run does, on whatever machine. The cluster itself needs
// no Lease: it is one run's alone.
func exclusively(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, mgmt *kube.Cluster,
	kubeconfig string, change func(context.Context) error) error {
	if kubeconfig != platform.ManagementKubeconfig {
		return change(ctx)
	}
	identity, err := ownership.Identity(tools)
	if err != nil {
		return err
	}
	l := &lease{mgmt: mgmt, me: holderName(identity), identity: identity, lasts: leaseFor, every: renewEvery}
	if err := l.acquire(ctx, say, cfg.ProvidersTimeout.D()); err != nil {
		return err
	}
	holding, lose := context.WithCancelCause(ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		l.renew(holding, lose)
	}()
	err = change(holding)
	if cause := context.Cause(holding); err != nil && errors.Is(cause, errLeaseLost) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	lose(nil)
	<-renewing
	l.release(context.WithoutCancel(ctx))
	return err
}

// holderName tells a person which run holds a Lease, and the runs of this state folder from all others.
func holderName(identity string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), identity)
}

// lease is the Lease as one run sees it.
type lease struct {
	mgmt         *kube.Cluster
	me           string
	identity     string // of the state folder, whose runs never work at once: what one of them held was left by a killed one
	lasts, every time.Duration

	// What another holder has written, and when this run saw it first. Clocks of two machines are never compared.
	seen   string
	seenAt time.Time
}

func (l *lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	is := &coordinationv1.Lease{}
	return is, l.mgmt.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: LeaseName}, is)
}

// acquire waits until no other run holds the Lease.
func (l *lease) acquire(ctx context.Context, say flow.Say, within time.Duration) error {
	w := wait.Wait{What: "the lease of the providers", Within: within, Every: askEvery}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		is, err := l.get(ctx)
		if apierrors.IsNotFound(err) {
			is = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: LeaseName}}
			l.hold(is)
			return l.written(l.mgmt.Create(ctx, is))
		}
		if err != nil {
			return "", l.failed("read", err)
		}
		if by := l.heldBy(is); by != "" {
			return by, nil
		}
		l.hold(is)
		return l.written(l.mgmt.Update(ctx, is)) // refused where another run was faster
	})
}

// written says what came of an attempt to take the Lease.
func (l *lease) written(err error) (string, error) {
	switch {
	case err == nil:
		return "", nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return "another run has just taken it", nil
	}
	return "", l.failed("write", err)
}

func (l *lease) failed(what string, err error) error {
	err = fmt.Errorf("%s Lease %s/%s: %w", what, metav1.NamespaceSystem, LeaseName, err)
	if kube.Unwell(err) {
		return err
	}
	return wait.Final(err)
}

// heldBy tells who holds the Lease; empty: no run does, or its holder has given no sign for as long as it lasts.
func (l *lease) heldBy(is *coordinationv1.Lease) string {
	holder := text(is.Spec.HolderIdentity)
	if holder == "" || holder == l.me || l.identity != "" && strings.HasSuffix(holder, "/"+l.identity) {
		return ""
	}
	lasts := l.lasts
	if seconds := is.Spec.LeaseDurationSeconds; seconds != nil {
		lasts = time.Duration(*seconds) * time.Second
	}
	if now := holder + is.ResourceVersion; now != l.seen {
		l.seen, l.seenAt = now, time.Now()
	}
	if time.Since(l.seenAt) >= lasts {
		return ""
	}
	since := ""
	if t := is.Spec.AcquireTime; t != nil {
		since = " since " + t.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s installs or upgrades the providers of this management cluster%s", holder, since)
}

// hold writes this run into a Lease as its holder.
func (l *lease) hold(is *coordinationv1.Lease) {
	now, seconds := metav1.NowMicro(), int32(max(1, l.lasts/time.Second))
	if text(is.Spec.HolderIdentity) != l.me {
		is.Spec.AcquireTime = &now
	}
	is.Spec.HolderIdentity, is.Spec.RenewTime, is.Spec.LeaseDurationSeconds = &l.me, &now, &seconds
}

// renew keeps the Lease until ctx ends, and ends the change where that fails for too long: before the Lease expires.
func (l *lease) renew(ctx context.Context, lose context.CancelCauseFunc) {
	renewed := time.Now()
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		switch err := l.again(ctx); {
		case err == nil:
			renewed = asked
		case errors.Is(err, errLeaseLost), time.Since(renewed) > l.lasts*3/4:
			lose(errLeaseLost)
			return
		}
	}
}

// again renews the Lease once.
func (l *lease) again(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(leaseAnswer, l.every))
	defer cancel()
	is, err := l.get(ctx)
	if err != nil {
		return err
	}
	if text(is.Spec.HolderIdentity) != l.me {
		return errLeaseLost
	}
	l.hold(is)
	return l.mgmt.Update(ctx, is)
}

// release lets the next run begin at once. Where it fails, the Lease expires.
func (l *lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseAnswer)
	defer cancel()
	is, err := l.get(ctx)
	if err != nil || text(is.Spec.HolderIdentity) != l.me {
		return
	}
	is.Spec.HolderIdentity = nil
	_ = l.mgmt.Update(ctx, is)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
