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
	lists, err := Within(ctx, func() ([]*metav1.APIResourceList, error) {
		return discovery.ServerPreferredNamespacedResources(d)
	})
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, nil, fmt.Errorf("ask %s for its kinds: %w", c.Host(), err)
	}
	return kindsWith(verbs, lists), failed, nil
}

// Within waits for an answer as long as ctx. A client that asks an API server for the kinds that it serves does so
// without a context.
func Within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := ask()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
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
