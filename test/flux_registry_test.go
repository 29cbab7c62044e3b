package test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fluxFromRegistry has Flux read OCI artifacts of a registry in place of the Git repository. No registry answers where
// Flux's Pods run: the step gives the source-controller's own reason, and what it wrote is there. That the credentials
// open a registry is a test of internal/ensure/flux.
func fluxFromRegistry(t *testing.T, c *command) {
	t.Helper()
	const token = "registry-token-of-the-test"
	from := *c
	from.env = append(slices.Clone(c.env), "GIT_TOKEN="+token)
	r := from.run(nil, "flux-sync", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1", "GIT_URL=oci://127.0.0.1:1/fleet",
		"OCI_TAG=v1.2.0", "RELEASE_TIMEOUT=30s")
	if r.exit != 1 || strings.Contains(r.output, token) || !strings.Contains(r.output,
		"OCIRepository flux-system/flux-system: failed to determine artifact digest") {
		t.Errorf("exit %d\n%s", r.exit, r.output)
	}
	secret, err := workload(t, c).CoreV1().Secrets("flux-system").Get(t.Context(), "flux-system-registry",
		metav1.GetOptions{})
	if err != nil || secret.Type != "kubernetes.io/dockerconfigjson" {
		t.Errorf("the Secret is of type %s, %v", secret.Type, err)
	}
}
