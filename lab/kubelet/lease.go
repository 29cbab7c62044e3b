package kubelet

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubelet's defaults: a lease of 40 s, renewed every quarter of it.
const (
	leaseSeconds = int32(40)
	renewEvery   = 10 * time.Second
)

// keepLease renews the Node's Lease until ctx is done: the heartbeat for the node lifecycle controller.
func (k *Kubelet) keepLease(ctx context.Context) {
	retry := toAPI()
	for {
		wait := renewEvery
		if err := k.renewLease(ctx); err == nil {
			retry.reset()
		} else if ctx.Err() == nil {
			wait = retry.next()
			k.log.Warn("the Node's Lease was not renewed", "reason", err, "again", wait)
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

func (k *Kubelet) renewLease(ctx context.Context) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), leaseSeconds
	lease, err := leases.Get(ctx, k.cfg.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.cfg.Node, Namespace: corev1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.cfg.Node, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}
		if node := k.node.Load(); node != nil { // so that it goes with the Node
			lease.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}}
		}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &k.cfg.Node, &seconds, &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
