package why

import (
	"strings"
	"testing"
)

// The messages are those of an API server 1.33, as kustomize-controller 1.7.2 has them in its conditions. Those of Helm
// have its own words before the API server's.
func TestRejectedStrategy(t *testing.T) {
	const deployment = "Deployment.apps \"web\" is invalid: spec.strategy.rollingUpdate: Forbidden: may not be " +
		"specified when strategy `type` is 'Recreate'"
	const statefulSet = "StatefulSet.apps \"db\" is invalid: spec.updateStrategy.rollingUpdate: Invalid value: " +
		"apps.RollingUpdateStatefulSetStrategy{Partition:0, MaxUnavailable:(*intstr.IntOrString)(nil)}: only allowed for " +
		"updateStrategy 'RollingUpdate'"
	for name, tt := range map[string]struct {
		message string
		says    []string
	}{
		"Kustomization": {"Deployment/default/web dry-run failed (Invalid): " + deployment + "\n",
			[]string{"Deployment web was changed from RollingUpdate to Recreate", "kubectl --namespace default patch " +
				"deployment web --type merge", `--patch '{"spec":{"strategy":{"type":` +
				`"Recreate","rollingUpdate":null}}}'`, "force: enabled"}},
		"StatefulSet": {"StatefulSet/apps/db dry-run failed (Invalid): " + statefulSet + "\n",
			[]string{"StatefulSet db was changed from RollingUpdate to OnDelete", "kubectl --namespace apps patch statefulset " +
				`db --type merge --patch '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`}},
		"HelmRelease": {"Helm upgrade failed for release apps/web with chart web@1.2.3: cannot patch \"web\" with kind " +
			"Deployment: " + deployment, []string{"kubectl --namespace NAMESPACE patch deployment web"}},
		"two": {"Deployment/default/web dry-run failed (Invalid): " + deployment +
			"\nStatefulSet/apps/db dry-run failed (Invalid): " + statefulSet, []string{"Deployment web", "; the update " +
			"strategy of StatefulSet db"}},
		"another field first": {strings.Replace(deployment, "invalid: ", "invalid: [spec.replicas: Invalid value: -1, ", 1),
			[]string{"Deployment web was changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := RejectedStrategy(tt.message)
			for _, want := range tt.says {
				if !strings.Contains(got, want) {
					t.Errorf("it does not say %q: %s", want, got)
				}
			}
			if name == "HelmRelease" && strings.Contains(got, "kustomize.toolkit") {
				t.Errorf("it names an annotation of another controller: %s", got)
			}
		})
	}
	for _, other := range []string{"", "kustomization path not found",
		`Deployment.apps "web" is invalid: spec.selector: Invalid value: field is immutable`,
		`Deployment.apps "web" is forbidden: exceeded quota`} {
		if got := RejectedStrategy(other); got != "" {
			t.Errorf("%q: %s", other, got)
		}
	}
}
