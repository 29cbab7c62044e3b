package steps

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/kube"
)

// groupOfClusterAPI is, or ends, the API groups of Cluster API and its providers.
const groupOfClusterAPI = "cluster.x-k8s.io"

// filesOfObjects says which file an object is from, by its group, kind and name.
type filesOfObjects map[string]source

// add takes up an object of a file. It refuses what a file that the operator added must not have: objects that the pivot
// would leave behind in the temporary management cluster, and those of another file.
func (f filesOfObjects) add(s source, o *unstructured.Unstructured) error {
	key := o.GroupVersionKind().GroupKind().String() + "/" + o.GetName()
	other, twice := f[key]
	if !twice {
		f[key] = s
	}
	if s.builtIn != nil {
		return nil
	}
	group := o.GroupVersionKind().Group
	switch {
	case twice:
		return fmt.Errorf("%s: %s is in %s already: an object belongs to one file; to change it there, put your own %s in that file's place",
			s.name, kube.Describe(o), other.name, other.path)
	case group != groupOfClusterAPI && !strings.HasSuffix(group, "."+groupOfClusterAPI):
		return fmt.Errorf("%s: %s is not of Cluster API (apiVersion %s): files in %s/ are applied to the management cluster, "+
			"and a pivot moves nothing else from there; apply it to the cluster itself, once that runs",
			s.name, kube.Describe(o), o.GetAPIVersion(), manifestsFolder)
	case o.GroupVersionKind().GroupKind() == clusterKind.GroupKind():
		return fmt.Errorf("%s: %s is a second cluster: a management cluster is moved as a whole; give that one a configuration of its own",
			s.name, kube.Describe(o))
	case o.GetNamespace() != Namespace:
		return fmt.Errorf("%s: %s is in namespace %q: the cluster's objects are in namespace %s (metadata.namespace)",
			s.name, kube.Describe(o), o.GetNamespace(), Namespace)
	}
	// clusterctl moves what the Cluster owns, and what has this label: a template that is not used yet may have no owner.
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[moveLabel] = ""
	o.SetLabels(labels)
	return nil
}
