package test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepsBuiltInValues asserts that Cilium's release has the operator's value and the built-in ones that Talos needs.
func keepsBuiltInValues(t *testing.T, c *command) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	records, err := workload(t, c).CoreV1().Secrets("kube-system").List(ctx,
		metav1.ListOptions{LabelSelector: "owner=helm,name=cilium,status=deployed"})
	if err != nil || len(records.Items) != 1 {
		t.Fatalf("%d deployed releases of Cilium, %v", len(records.Items), err)
	}
	packed, err := base64.StdEncoding.DecodeString(string(records.Items[0].Data["release"]))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Config struct {
			Debug          struct{ Enabled bool }
			K8sServicePort int
			Cgroup         struct{ HostRoot string }
		}
	}
	if err := json.NewDecoder(unpacked).Decode(&release); err != nil {
		t.Fatal(err)
	}
	if v := release.Config; !v.Debug.Enabled || v.K8sServicePort != 7445 || v.Cgroup.HostRoot != "/sys/fs/cgroup" {
		t.Errorf("with debug.enabled alone in the operator's file the release has %+v", v)
	}
}

// showsValuesOfTheLab asserts that config show prints the values of a run in the lab.
func showsValuesOfTheLab(t *testing.T, c *command) {
	t.Helper()
	out, err := c.exec(context.Background(), "config", "show", "--lab", "--output", "json")
	if err != nil {
		t.Fatalf("config show: %v\n%s", err, out)
	}
	var shown struct {
		Settings []struct{ Variable, Value, Source string }
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatalf("config show: %v\n%s", err, out)
	}
	for _, s := range shown.Settings {
		if s.Variable == "POD_CIDR" && (s.Source != "the lab" || !strings.HasPrefix(s.Value, "127.")) {
			t.Errorf("config show tells %+v", s)
		}
	}
}
