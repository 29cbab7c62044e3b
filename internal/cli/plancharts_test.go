package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest/fakeenv"
)

// loopbackCharts downloads charts of this machine alone: tests reach no other.
func loopbackCharts(ctx context.Context, from kube.ChartSource) ([]byte, error) {
	if !strings.HasPrefix(from.Repository, "http://127.") {
		return nil, errors.New("tests reach no other machine")
	}
	return kube.DownloadChart(ctx, from, "", io.Discard)
}

// Values that a chart does not render with are refused before anything is created, by plan and doctor alike.
func TestValuesThatAChartRefuses(t *testing.T) {
	charts, err := fakeenv.Charts(t.TempDir(), fakeenv.Chart{Name: "cilium", Version: config.Defaults().CiliumVersion,
		Kind: "DaemonSet", More: `{{ if and (not .Values.hubble.enabled) .Values.hubble.relay.enabled }}` +
			`{{ fail "Hubble Relay requires .Values.hubble.enabled=true" }}{{ end }}` +
			`{{ if and .Values.monitored (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}` +
			`{{ fail "there is no ServiceMonitor" }}{{ end }}`})
	if err != nil {
		t.Fatal(err)
	}
	defer charts.Close()
	dir := t.TempDir()
	environment := "CILIUM_REPOSITORY=" + charts.URL
	values := filepath.Join(dir, "bootstrap", "cilium-values.yaml")
	if err := os.MkdirAll(filepath.Dir(values), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hubble: {enabled: false, relay: {enabled: true}}\n")
	r := execute(t, t.Context(), dir, environment, "plan")
	for _, want := range []string{"bootstrap/cilium-values.yaml: chart cilium", "Hubble Relay requires .Values.hubble.enabled=true"} {
		if r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("it does not say %q: %+v", want, r)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".slipway")); err == nil {
		t.Error("plan has made a state folder")
	}
	write("hubble: {enabled: true, relay: {enabled: true}}\n")
	if r = execute(t, t.Context(), dir, environment, "plan"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "not checked: chart hcloud-cloud-controller-manager") ||
		strings.Contains(r.stdout, "not checked: chart cilium") {
		t.Errorf("with values that render: %+v", r)
	}
	write("monitored: true\nhubble: {enabled: true}\n")
	if r = execute(t, t.Context(), dir, environment, "plan"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "depends on what is in the cluster") {
		t.Errorf("with values that depend on the cluster: %+v", r)
	}
}
