package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/slipway-k8s/slipway"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// hetzner answers the requests of the step firewall within the process, so that no test opens a connection: there
// is no firewall, and one can be created. Every other request is refused.
type hetzner struct{ made int }

func (h *hetzner) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusForbidden, `{"error":{"code":"forbidden","message":"not in this test"}}`
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/firewalls"):
		status, body = http.StatusOK, `{"firewalls":[]}`
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/firewalls"):
		h.made++
		status, body = http.StatusCreated, `{"firewall":{"id":7,"name":"k8s"},"actions":[]}`
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// offline is a session at the simulated project, with the program's steps.
func offline(t *testing.T, observe func(flow.Event)) (*slipway.Session, *hetzner) {
	t.Helper()
	h, cfg := &hetzner{}, config.Defaults()
	client := hcloud.NewClient(hcloud.WithToken("none"), hcloud.WithHTTPClient(&http.Client{Transport: h}))
	s, err := slipway.Open(t.Context(), cfg, slipway.Options{StateDir: t.TempDir(), Token: platform.NewSecret("none"),
		Hetzner: client, SkipDoctor: true, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	add(s)
	return s, h
}

// TestOrder: argo-cd lies between wait-nodes and pivot, and the step in clean's place has clean's edges.
func TestOrder(t *testing.T) {
	s, _ := offline(t, nil)
	p := s.Plan
	needs := map[string][]string{}
	for _, s := range p.Graph.Steps() {
		needs[s.Name] = s.Needs
		if s.Name == "clean" && s.Doc != "the management cluster is kept" {
			t.Errorf("clean is %q; want our own", s.Doc)
		}
	}
	if err := p.Graph.Validate(); err != nil {
		t.Error(err)
	}
	after := map[string]string{"argo-cd": "wait-nodes", "pivot": "argo-cd", "clean": "pivot", "wait-nodes": "kubeconfig"}
	for step, need := range after {
		if !slices.Contains(needs[step], need) {
			t.Errorf("%s needs %v; want %s among them", step, needs[step], need)
		}
	}
}

// TestRun runs a step of Slipway's and one of our own that takes its output, sees their events, and reads both
// outputs.
func TestRun(t *testing.T) {
	var said []string
	s, h := offline(t, func(e flow.Event) {
		if e.Kind == flow.StepProgress {
			said = append(said, e.Step+": "+e.Message)
		}
	})
	report := flow.Add(s.Plan.Graph, flow.Task[int64]{
		Name: "report",
		Run: flow.With1(func(_ context.Context, say flow.Say, f steps.Firewall) (int64, error) {
			say("firewall %d has %d rules", f.ID, len(f.Rules))
			return f.ID, nil
		}, s.Plan.Firewall),
	})
	result, err := s.Run(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	if firewall, err := slipway.Output(t.Context(), result, s.Plan.Firewall); err != nil || firewall.ID != 7 || h.made != 1 {
		t.Errorf("firewall: %+v, %v, made %d times; want firewall 7, made once", firewall, err, h.made)
	}
	if id, err := slipway.Output(t.Context(), result, report); err != nil || id != 7 {
		t.Errorf("report: %d, %v; want 7", id, err)
	}
	ours := func(s string) bool { return strings.HasPrefix(s, "firewall: ") }
	if !slices.Contains(said, "report: firewall 7 has 2 rules") || !slices.ContainsFunc(said, ours) {
		t.Errorf("events: %q; want some of firewall and of report", said)
	}
}

// TestRefused: a step that fails ends the run before ours, and its error names it.
func TestRefused(t *testing.T) {
	s, _ := offline(t, nil)
	result, err := s.Run(t.Context(), "argo-cd")
	if err == nil || !strings.Contains(err.Error(), "preflight") || result == nil {
		t.Fatalf("%v; want an error of preflight", err)
	}
	if argo, _ := result.Report.Step("argo-cd"); argo.Outcome != flow.Skipped {
		t.Errorf("argo-cd %s; want it skipped", argo.Outcome)
	}
}

// TestShort: the program has less than 60 lines and imports nothing internal.
func TestShort(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n >= 60 || bytes.Contains(source, []byte("slipway/internal")) {
		t.Errorf("main.go has %d lines; want less than 60, and no internal package", n)
	}
}
