package releases

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
)

// kind is Flux's HelmRelease.
var kind = flux.HelmReleaseKind

// Types of conditions of a HelmRelease.
const (
	conditionReady       = "Ready"
	conditionReconciling = "Reconciling"
	conditionStalled     = "Stalled"
	conditionReleased    = "Released"
	conditionRemediated  = "Remediated"
)

// actionTimeout is how long helm-controller lets each operation of Helm take where the object does not say
// (HelmRelease.GetTimeout).
const actionTimeout = 5 * time.Minute

// helmRelease is what recovering needs of a HelmRelease.
type helmRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Suspend          bool             `json:"suspend"`
		ReleaseName      string           `json:"releaseName"`
		TargetNamespace  string           `json:"targetNamespace"`
		StorageNamespace string           `json:"storageNamespace"`
		KubeConfig       map[string]any   `json:"kubeConfig"`
		Timeout          *metav1.Duration `json:"timeout"`
		Install          operation        `json:"install"`
		Upgrade          operation        `json:"upgrade"`
		Rollback         operation        `json:"rollback"`
		Test             operation        `json:"test"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		StorageNamespace   string             `json:"storageNamespace"`
		Conditions         []metav1.Condition `json:"conditions"`
		History            []snapshot         `json:"history"`
	} `json:"status"`
}

// operation is what a HelmRelease says of one of Helm's operations.
type operation struct {
	Timeout        *metav1.Duration `json:"timeout"`
	Enable         bool             `json:"enable"`         // of tests
	IgnoreFailures bool             `json:"ignoreFailures"` // of tests
}

// snapshot is a revision of the Helm release as helm-controller saw it.
type snapshot struct {
	Name         string `json:"name"`
	Namespace    string `json:"namespace"`
	Version      int    `json:"version"`
	Status       string `json:"status"`
	ChartName    string `json:"chartName"`
	ChartVersion string `json:"chartVersion"`
	TestHooks    *map[string]*struct {
		Phase string `json:"phase"`
	} `json:"testHooks"`
}

func fromUnstructured(o *unstructured.Unstructured) (r helmRelease, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", kube.Describe(o), err)
	}
	return r, nil
}

// String is "HelmRelease apps/shop".
func (r helmRelease) String() string { return "HelmRelease " + r.Namespace + "/" + r.Name }

// condition is that of a type; one without a type where there is none.
func (r helmRelease) condition(of string) metav1.Condition {
	for _, c := range r.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return metav1.Condition{}
}

// releaseName is the name that helm-controller gives the Helm release: one that is too long for Helm ends with a part
// of its SHA-256.
func (r helmRelease) releaseName() string {
	name := r.Name
	if r.Spec.TargetNamespace != "" {
		name = r.Spec.TargetNamespace + "-" + r.Name
	}
	name = cmp.Or(r.Spec.ReleaseName, name)
	const longest, digits = 53, 12
	if len(name) <= longest {
		return name
	}
	return name[:longest-digits-1] + "-" + fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:digits]
}

// releaseNamespace is where the release's objects are.
func (r helmRelease) releaseNamespace() string { return cmp.Or(r.Spec.TargetNamespace, r.Namespace) }

// storageNamespace is where Helm's records of the release are.
func (r helmRelease) storageNamespace() string {
	return cmp.Or(r.Status.StorageNamespace, r.Spec.StorageNamespace, r.Namespace)
}

// longestOperation is the longest time-out of an operation of Helm for the release.
func (r helmRelease) longestOperation() time.Duration {
	longest := actionTimeout
	if r.Spec.Timeout != nil {
		longest = r.Spec.Timeout.Duration
	}
	for _, o := range []operation{r.Spec.Install, r.Spec.Upgrade, r.Spec.Rollback} {
		if o.Timeout != nil {
			longest = max(longest, o.Timeout.Duration)
		}
	}
	return longest
}

// changed is when the object was last written, but for its status and what Slipway wrote.
func (r helmRelease) changed() (at time.Time) {
	for _, f := range r.ManagedFields {
		if f.Subresource == "" && f.Manager != kube.FieldManager && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// latest is the newest revision that helm-controller has reported; false: none.
func (r helmRelease) latest() (snapshot, bool) {
	if len(r.Status.History) == 0 {
		return snapshot{}, false
	}
	return slices.MaxFunc(r.Status.History, func(a, b snapshot) int { return cmp.Compare(a.Version, b.Version) }), true
}

// untested says which of the chart's tests are not known to have succeeded; empty: that does not matter, or all have.
func (r helmRelease) untested(s snapshot) string {
	if !r.Spec.Test.Enable || r.Spec.Test.IgnoreFailures {
		return ""
	}
	if s.TestHooks == nil {
		return "the results of its tests are not reported"
	}
	for name, hook := range *s.TestHooks {
		if hook == nil || hook.Phase != "Succeeded" {
			return "its test " + name + " is not reported to have succeeded"
		}
	}
	return ""
}
