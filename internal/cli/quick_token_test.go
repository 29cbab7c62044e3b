//go:build unix

package cli

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// tokens are the Secrets with the Hetzner token of a cluster that manages itself, and the key of it.
func tokens() map[[2]string]string {
	return map[[2]string]string{
		{config.DefaultNamespace, config.TokenSecretName}: config.TokenSecretKey,
		{"kube-system", config.CCMSecretName}:             render.HCloudTokenKey,
	}
}

// token is what a Secret has.
func (q *quick) token(t *testing.T, secret [2]string, key string) string {
	t.Helper()
	value, err := base64.StdEncoding.DecodeString(
		capi.Text(q.Management.Get("v1", "Secret", secret[0], secret[1]), "data", key))
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// withOldToken is a cluster that manages itself, whose Secrets have another token than the command, and a CSI driver
// that has read it.
func withOldToken(t *testing.T) *quick {
	t.Helper()
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	if code, said := q.command(t, "token"); code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	q.Management.Put(kubetest.Object("apps/v1", "Deployment", "kube-system", "hcloud-csi-controller", map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "driver", "env": []any{map[string]any{"name": "HCLOUD_TOKEN", "valueFrom": map[string]any{
				"secretKeyRef": map[string]any{"name": config.CCMSecretName, "key": render.HCloudTokenKey}}}}}}}}}}))
	q.Management.Put(kubetest.Object("apps/v1", "Deployment", "kube-system", "another", nil))
	for secret, key := range tokens() {
		q.Management.Change("v1", "Secret", secret[0], secret[1], map[string]any{"data": map[string]any{
			key: base64.StdEncoding.EncodeToString([]byte("the-old-token"))}})
	}
	return q
}

func (q *quick) restarted(deployment string) bool {
	return capi.Text(q.Management.Get("apps/v1", "Deployment", "kube-system", deployment), "spec", "template", "metadata",
		"annotations", capi.ReplacedAnnotation) != ""
}

// After the pivot a new token reaches CAPH, too, and what reads it as it starts is restarted, once; status says before
// that it has not.
func TestNewTokenAfterThePivot(t *testing.T) {
	q := withOldToken(t)
	_, said := q.command(t, "status")
	for secret := range tokens() {
		wantSaid(t, "status", said, "Secret "+strings.Join(secret[:], "/")+" holds another value of ",
			"writes the token of this command")
	}
	code, said := q.command(t, "token")
	if code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	for secret, key := range tokens() {
		if got := q.token(t, secret, key); got != hetznertest.Token {
			t.Errorf("Secret %v has %q", secret, got)
		}
	}
	if !q.restarted("hcloud-csi-controller") || q.restarted("another") {
		t.Error("not restarted: the driver that reads the token; or restarted: what reads none")
	}
	before := q.look()
	_, said = q.command(t, "status")
	if strings.Contains(said, "another value") || strings.Contains(said, "restarted") {
		t.Errorf("status is not content: %s", said)
	}
	if code, said := q.command(t, "token"); code != ExitDone || q.look() != before {
		t.Errorf("a second run ends with %d: %s\n%s", code, said, difference(before, q.look()))
	}
	q.Management.Change("apps/v1", "Deployment", "kube-system", "hcloud-csi-controller",
		map[string]any{"spec": map[string]any{
			"template": map[string]any{"metadata": map[string]any{"annotations": nil}}}})
	_, said = q.command(t, "status")
	wantSaid(t, "status", said, "Deployment kube-system/hcloud-csi-controller has not been restarted since")
}

// A run that was killed between the Secret and the restart of what reads it finds that later.
func TestRestartsAfterANewTokenAreNotLost(t *testing.T) {
	q := withOldToken(t)
	code, said := q.commandDies(t, death{places: string(effect.PointReplied) +
		" workload apply secrets/kube-system/hcloud#1"},
		"token")
	if code != killed || q.restarted("hcloud-csi-controller") {
		t.Fatalf("exit %d: %s", code, said)
	}
	if code, said := q.command(t, "token"); code != ExitDone || !q.restarted("hcloud-csi-controller") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// A token that may only read replaces none, although everything else of the run is done already.
func TestReadOnlyTokenReplacesNone(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"with the doctor": {[]string{"token"}, "1 check of the doctor failed: nothing was created"},
		"without": {[]string{"token", "--skip-doctor"},
			"the Hetzner token is not written into Secret kube-system/hcloud"},
	} {
		t.Run(name, func(t *testing.T) {
			q := withOldToken(t)
			q.Hetzner.ReadOnly()
			before := q.look()
			code, said := q.command(t, tt.args...)
			if code != ExitFailed {
				t.Errorf("exit %d", code)
			}
			wantSaid(t, "the run", said, "Hetzner takes the token for reading only",
				"create a token with read and write permission",
				tt.says)
			if after := q.look(); after != before {
				t.Errorf("it changed something:\n%s", difference(before, after))
			}
		})
	}
}
