package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the golden page again")

// full has something in every part of the page.
func full() Page {
	return Page{
		Title: "Bootstrap of k8s", State: Done, Lead: []string{"It took 2 runs.", "One step was the longest."},
		Facts: []Fact{{"cluster", "k8s"}},
		Runs: []Run{
			{Number: 1, ID: "a", Began: "2026-01-02 03:04:05", Took: "5.0s", State: Killed, Why: "a < b", Width: 25,
				TargetsWanted: "all"},
			{Number: 2, ID: "b", Began: "2026-01-02 03:05:05", Took: "15.0s", After: "55.0s", State: Done, Left: 25, Width: 75},
		},
		Ticks: []Tick{{0, "0"}, {50, "10s"}},
		Rows: []Row{
			{Name: "first", Doc: "it stands", Critical: true, State: Done, Attempts: 2, Took: "8.0s", Error: "no & no",
				Bars: []Bar{
					{Left: 0, Width: 25, State: Killed, Text: "first, run 1"}, {Left: 25, Width: 15, State: Done, Text: "first, run 2",
						Label: "3.0s"},
				}, Said: []Said{{At: "0.1s", For: "3.0s", Text: "waiting <for> it", Run: 1}, {At: "3.1s", Text: "quota", Run: 1,
					Trouble: true}}},
			{Name: "second", State: Reused, Bars: []Bar{{Left: 90, Width: 0.2, State: Reused, Text: "second", Label: "0.0s",
				Turned: true}}},
		},
		Path: []Span{{"first", "8.0s", 100}}, Waits: []Wait{{"first", "3.0s", "waiting <for> it"}},
		Trouble: []Trouble{{At: "5.0s", What: "run killed", Text: "at work: first", Run: 1, State: Killed}},
		Changes: []Change{{"hetzner", "create firewalls/k8s", "firewall", 2, 1, 1}},
		Nodes:   []Node{{"n", "v1.32.2", "10.0.0.1", "192.0.2.1", "hcloud://1"}},
		Made:    []Fact{{"endpoint", "192.0.2.9:6443"}}, Notes: []string{"a note"}, Setup: []Fact{{"Slipway", "v1"}},
		Values: []Value{{"LOCATION", "fsn1", "argument LOCATION", true}, {"SERVER_TYPE", "cx33", "default", false}},
		Foot:   "Made by a test.",
	}
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, full()); err != nil {
		t.Fatal(err)
	}
	// The style is looked at, not compared.
	got := regexp.MustCompile(`(?s)<style>.*</style>\n`).ReplaceAll(b.Bytes(), nil)
	golden := filepath.Join("testdata", "page.html")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the page is not testdata/page.html; look at it, and write it with -update:\n%s", got)
	}
}

// TestPageNeedsNothingElse looks for what a browser would load, and for script.
func TestPageNeedsNothingElse(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, full()); err != nil {
		t.Fatal(err)
	}
	for _, loads := range []string{`<script`, `<link`, `<img`, `<iframe`, `\burl\(`, `@import`, `\bsrc=`, `\bon[a-z]+=`,
		`https?://`, `ZgotmplZ`} {
		if found := regexp.MustCompile(loads).Find(b.Bytes()); found != nil {
			t.Errorf("the page has %q", found)
		}
	}
	if !bytes.Contains(b.Bytes(), []byte(`content="default-src 'none'; style-src 'unsafe-inline'"`)) {
		t.Error("nothing forbids the page to load something")
	}
}
