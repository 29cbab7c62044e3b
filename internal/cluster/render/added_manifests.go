package render

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// groupOfClusterAPI is, or ends, the API groups of Cluster API and its providers.
const groupOfClusterAPI = "cluster.x-k8s.io"

// filesOfObjects says which file an object is from, by its group, kind and name.
type filesOfObjects map[string]Source

// add takes up an object of a file. It refuses an object in another namespace than the cluster's, and what a file that
// the operator added must not have: objects that the pivot would leave behind in the temporary management cluster, and
// those of another file.
func (f filesOfObjects) add(namespace string, s Source, o *unstructured.Unstructured) error {
	key := o.GroupVersionKind().GroupKind().String() + "/" + o.GetName()
	other, twice := f[key]
	if !twice {
		f[key] = s
	}
	if s.BuiltIn != nil {
		if !ofClusterAPI(o) { // the file's checks say more
			return nil
		}
		return takeNamespace(namespace, s, o)
	}
	switch {
	case twice:
		return fmt.Errorf("%s: %s is in %s already: an object belongs to one file; to change it there, put your own %s in "+
			"that file's place",
			s.Name, kube.Describe(o), other.Name, other.Path)
	case !ofClusterAPI(o):
		return fmt.Errorf("%s: %s is not of Cluster API (apiVersion %s): files in %s/ are applied to the management "+
			"cluster, and a pivot moves nothing else from there; apply it to the cluster itself, once that runs",
			s.Name, kube.Describe(o), o.GetAPIVersion(), manifestsFolder)
	case o.GroupVersionKind().GroupKind() == capi.ClusterKind.GroupKind():
		return fmt.Errorf("%s: %s is a second cluster: a management cluster is moved as a whole; give that one a "+
			"configuration of its own",
			s.Name, kube.Describe(o))
	}
	if err := takeNamespace(namespace, s, o); err != nil {
		return err
	}
	// clusterctl moves what the Cluster owns, and what has this label: a template that is not used yet may have no owner.
	addLabel(o, capi.MoveLabel, "")
	return nil
}

// ofClusterAPI tells whether an object is of a kind of Cluster API or its providers.
func ofClusterAPI(o *unstructured.Unstructured) bool {
	group := o.GroupVersionKind().Group
	return group == groupOfClusterAPI || strings.HasSuffix(group, "."+groupOfClusterAPI)
}

// takeNamespace puts an object of a file that names no namespace into that of the cluster's objects, as kubectl does
// with the one of its context, and refuses an object of another one.
func takeNamespace(namespace string, s Source, o *unstructured.Unstructured) error {
	if o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	if o.GetNamespace() == namespace {
		return nil
	}
	return fmt.Errorf("%s: %s is in namespace %q, and the cluster's objects are in namespace %s: write metadata.namespace: "+
		"${NAMESPACE:=%s}", s.Name, kube.Describe(o), o.GetNamespace(), namespace, config.DefaultNamespace)
}
