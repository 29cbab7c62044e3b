package etcdview

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Revision is that of the store behind an API server, which every answer to a list carries.
func Revision(ctx context.Context, c *kube.Cluster) (int64, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.List(ctx, l, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("ask %s for its revision: %w", c.Host(), err)
	}
	n, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask %s for its revision: it says %q", c.Host(), l.ResourceVersion)
	}
	return n, nil
}
