package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// NamespacedKinds asks which kinds with objects in namespaces the API server serves, each in the version that it
// prefers, as far as they have all of the verbs. unknown has the groups whose kinds it could not tell, as where the
// server of an APIService is down.
func (c *Cluster) NamespacedKinds(ctx context.Context, verbs ...string) (kinds []schema.GroupVersionKind,
	unknown map[schema.GroupVersion]error, err error) {
	bounded := rest.CopyConfig(c.config)
	bounded.Timeout = discoveryWithin
	d, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client for %s: %w", c.Host(), err)
	}
	type answer struct {
		kinds []schema.GroupVersionKind
		err   error
	}
	answered := make(chan answer, 1)
	go func() { // the question knows no context
		lists, err := discovery.ServerPreferredNamespacedResources(d)
		answered <- answer{kindsWith(verbs, lists), err}
	}()
	select {
	case is := <-answered:
		failed, partly := discovery.GroupDiscoveryFailedErrorGroups(is.err)
		if is.err != nil && !partly {
			return nil, nil, fmt.Errorf("ask %s for its kinds: %w", c.Host(), is.err)
		}
		return is.kinds, failed, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("ask %s for its kinds: %w", c.Host(), context.Cause(ctx))
	}
}

// kindsWith are the kinds in lists that have all of the verbs.
func kindsWith(verbs []string, lists []*metav1.APIResourceList) (kinds []schema.GroupVersionKind) {
	for _, list := range lists {
		for _, r := range list.APIResources {
			missing := func(verb string) bool { return !slices.Contains(r.Verbs, verb) }
			if !strings.Contains(r.Name, "/") && !slices.ContainsFunc(verbs, missing) {
				kinds = append(kinds, schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind))
			}
		}
	}
	return kinds
}
