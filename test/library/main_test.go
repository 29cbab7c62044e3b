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
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/kind"
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

func offline(t *testing.T) (*steps.Plan, *hetzner) {
	t.Helper()
	h, cfg := &hetzner{}, config.Defaults()
	client := hcloud.NewClient(hcloud.WithToken("none"), hcloud.WithHTTPClient(&http.Client{Transport: h}))
	tools := platform.Tools{Files: platform.FilesIn(t.TempDir()), Hetzner: client}
	tools.Management = kind.New(cfg, tools)
	return plan(cfg, tools), h
}

// TestOrder: argo-cd lies between wait-nodes and pivot, and the step in clean's place has clean's edges.
func TestOrder(t *testing.T) {
	p, _ := offline(t)
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
	p, h := offline(t)
	report := flow.Add(p.Graph, flow.Task[int64]{
		Name: "report",
		Run: flow.With1(func(_ context.Context, say flow.Say, f steps.Firewall) (int64, error) {
			say("firewall %d has %d rules", f.ID, len(f.Rules))
			return f.ID, nil
		}, p.Firewall),
	})
	var said []string
	journal := flow.Memory()
	observe := func(e flow.Event) {
		if e.Kind == flow.StepProgress {
			said = append(said, e.Step+": "+e.Message)
		}
	}
	_, err := p.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: []string{"report"}, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	firewall, done, err := flow.Restore(t.Context(), journal, p.Firewall)
	if err != nil || !done || firewall.ID != 7 || h.made != 1 {
		t.Errorf("firewall: %+v, done %v, %v, made %d times; want firewall 7, made once", firewall, done, err, h.made)
	}
	if id, done, err := flow.Restore(t.Context(), journal, report); err != nil || !done || id != 7 {
		t.Errorf("report: %d, done %v, %v; want 7", id, done, err)
	}
	ours := func(s string) bool { return strings.HasPrefix(s, "firewall: ") }
	if !slices.Contains(said, "report: firewall 7 has 2 rules") || !slices.ContainsFunc(said, ours) {
		t.Errorf("events: %q; want some of firewall and of report", said)
	}
}

// TestRefused: a step that fails ends the run before ours, and its error names it.
func TestRefused(t *testing.T) {
	p, _ := offline(t)
	report, err := p.Graph.Run(t.Context(), flow.Options{Targets: []string{"argo-cd"}})
	argo, _ := report.Step("argo-cd")
	if err == nil || !strings.Contains(err.Error(), "preflight") || argo.Outcome != flow.Skipped {
		t.Errorf("%v, argo-cd %s; want an error of preflight, argo-cd skipped", err, argo.Outcome)
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
