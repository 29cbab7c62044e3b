package situation

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// LiveEndpoint is the control plane endpoint in the live HetznerCluster; the zero value while it has none. A cluster
// that the management cluster knows nothing of, but whose servers exist, is not created a second time beside itself.
func LiveEndpoint(ctx context.Context, cfg config.Config, tools platform.Tools,
	mgmt *kube.Cluster) (render.Endpoint, error) {
	live, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	if err == nil {
		return render.EndpointOf(live), nil
	}
	if !kube.Absent(err) {
		return render.Endpoint{}, err
	}
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return render.Endpoint{}, err
	}
	if len(servers) > 0 {
		return render.Endpoint{}, fmt.Errorf("%d servers of a cluster %s exist at Hetzner (%s), but this management "+
			"cluster knows nothing "+
			"of it: "+
			"a second cluster would be created in its network and load balancer; work with the management cluster that knows "+
			"it, delete the servers, or choose another CLUSTER_NAME",
			len(servers), cfg.ClusterName, hetzner.ServerNames(servers))
	}
	return render.Endpoint{}, nil
}

// VerifyObjects asks for every object of a cluster in a namespace, whose Cluster object has the UID.
func VerifyObjects(ctx context.Context, mgmt *kube.Cluster, namespace string, objects []platform.Object, cluster,
	uid string) flow.Verdict {
	for _, name := range objects {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(name.APIVersion, name.Kind))
		if err := mgmt.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name.Name}, o); err != nil {
			return kube.Verdict(fmt.Errorf("get %s %s: %w", name.Kind, name.Name, err))
		}
		if o.GetDeletionTimestamp() != nil {
			return flow.Unknown(fmt.Errorf("%s %s is being deleted: wait until it is gone", name.Kind, name.Name))
		}
		if name.Kind == capi.ClusterKind.Kind && name.Name == cluster && string(o.GetUID()) != uid {
			return flow.Gone("Cluster %s is another one than the recorded", cluster)
		}
	}
	return flow.Holds()
}
