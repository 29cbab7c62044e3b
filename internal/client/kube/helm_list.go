package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReleaseState is a Helm release as its newest record is labelled.
type ReleaseState struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Revision  int    `json:"revision"`
	Status    string `json:"status"` // Helm's status: deployed, failed, pending-install, …
	Owner     string `json:"-"`      // who wrote the record, as OwnerAnnotation says; empty: not Slipway
}

// Releases lists the Helm releases of all namespaces, by name. It reads labels alone, as there are charts in the
// records.
func (c *Cluster) Releases(ctx context.Context) ([]ReleaseState, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.List(ctx, l, client.MatchingLabels{"owner": "helm"}); err != nil {
		return nil, fmt.Errorf("list the Helm releases: %w", err)
	}
	newest := map[string]ReleaseState{}
	for _, s := range l.Items {
		revision, err := strconv.Atoi(s.Labels["version"])
		if key := s.Namespace + "/" + s.Labels["name"]; err == nil && revision > newest[key].Revision {
			newest[key] = ReleaseState{Name: s.Labels["name"], Namespace: s.Namespace, Revision: revision,
				Status: s.Labels["status"], Owner: s.Annotations[OwnerAnnotation]}
		}
	}
	found := slices.AppendSeq([]ReleaseState{}, maps.Values(newest)) // never nil: it is JSON
	slices.SortFunc(found, func(a, b ReleaseState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return found, nil
}
