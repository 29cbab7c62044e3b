package steps

import (
	"bytes"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// A kubeconfig or talosconfig that an attacker wrote into the cluster's Secret ends the run with its reason, and the one
// in the state folder stays.
func TestForgedSecrets(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	files := w.Tools().Files
	attacker := kubetest.New("attacker")
	t.Cleanup(attacker.Close)
	for what, c := range map[string]struct {
		file, secret, key string
		forged            []byte
		says              string
	}{
		"a program": {platform.Kubeconfig, "k8s-kubeconfig", "value", bytes.Replace(w.Workload.Kubeconfig(),
			[]byte("token: test"), []byte("exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}"), 1), "field exec"},
		"another server": {platform.Kubeconfig, "k8s-kubeconfig", "value", attacker.Kubeconfig(), "certificate authority"},
		"another way to authenticate": {platform.Talosconfig, "k8s-talosconfig", "talosconfig",
			[]byte("context: a\ncontexts: {a: {auth: {siderov1: {identity: a}}}}"), "field auth.siderov1"},
	} {
		t.Run(what, func(t *testing.T) {
			good, err := files.Read(c.file)
			if err != nil {
				t.Fatal(err)
			}
			put := func(value []byte) {
				w.Management.Change("v1", "Secret", config.DefaultNamespace, c.secret,
					clustertest.Map{"data": clustertest.Map{c.key: value}})
			}
			was := map[string][]byte{platform.Kubeconfig: w.Workload.Kubeconfig(), platform.Talosconfig: w.Talosconfig}[c.file]
			put(c.forged)
			defer put(was)
			if _, err := runPlan(t, w, w.Config(), journal, nil); err == nil || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), c.secret) {
				t.Errorf("the run ends with %v", err)
			}
			if is, err := files.Read(c.file); err != nil || !bytes.Equal(is, good) {
				t.Errorf("%s was replaced: %v", c.file, err)
			}
		})
	}
}
