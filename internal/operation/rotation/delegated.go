package rotation

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// delegatedName is the ConfigMap in kube-system from which extension API servers, kube-controller-manager and
// kube-scheduler have the authorities whose clients they accept, and delegatedKey its key with these. Each
// kube-apiserver adds its own to it, and removes none that has not expired (k8s.io/kubernetes,
// pkg/controlplane/controller/clusterauthenticationtrust).
const (
	delegatedName = "extension-apiserver-authentication"
	delegatedKey  = "client-ca-file"
)

// dropDelegated removes the old authority from that ConfigMap. No kube-apiserver may have it any more.
func dropDelegated(ctx context.Context, say flow.Say, workload *kube.Cluster, a authorities) error {
	is := &corev1.ConfigMap{}
	err := workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: delegatedName}, is)
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, delegatedName, err)
	}
	wanted := withoutCertificate([]byte(is.Data[delegatedKey]), a.kubernetes.old)
	if same(wanted, []byte(is.Data[delegatedKey])) {
		return nil
	}
	say("removing the old authority from ConfigMap %s/%s", is.Namespace, is.Name)
	changed := is.DeepCopy()
	changed.Data[delegatedKey] = string(wanted)
	patch := client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})
	if err := workload.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("remove the old authority from ConfigMap %s/%s: %w", is.Namespace, is.Name, err)
	}
	return nil
}

// withoutCertificate are certificates in PEM without one of them.
func withoutCertificate(all, one []byte) []byte {
	drop, _ := pem.Decode(one)
	var kept []byte
	for rest := all; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return kept
		}
		if drop == nil || !bytes.Equal(block.Bytes, drop.Bytes) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
	}
}
