package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runOf(pace string, pair int, side string, nodes, pivot float64) measured {
	return measured{Pace: pace, Pair: pair, Side: side, Marks: map[string]float64{markNodes: nodes, markPivot: pivot}}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{4, 1}, spread{2.5, 1, 4}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
	} {
		if is := spreadOf(test.values); is != test.want {
			t.Errorf("spread of %v: %v, want %v", test.values, is, test.want)
		}
	}
}

// A ratio is that of one pair, whose two runs met the same machine; not that of the sides' medians.
func TestRatiosAreThoseOfPairs(t *testing.T) {
	runs := []measured{
		runOf("real", 0, sideMake, 100, 200), runOf("real", 0, sideSlipway, 80, 100),
		runOf("real", 1, sideSlipway, 160, 300), runOf("real", 1, sideMake, 200, 400),
		runOf("real", 2, sideMake, 100, 200), // its other run is missing
		runOf("fast", 0, sideMake, 10, 20), runOf("fast", 0, sideSlipway, 20, 10),
	}
	c := compareAt(runs, "real", markPivot)
	if want := (spread{0.625, 0.5, 0.75}); len(c.ratios) != 2 || spreadOf(c.ratios) != want {
		t.Errorf("ratios %v, want two with the spread %v", c.ratios, want)
	}
	if want := (spread{300, 200, 400}); spreadOf(c.makefile) != want {
		t.Errorf("the Makefile's times %v, want the spread %v", c.makefile, want)
	}
	if pairs := pairsOf(runs, "real"); pairs != 3 {
		t.Errorf("%d pairs, want 3: the next one has the number 3", pairs)
	}
}

func TestTables(t *testing.T) {
	slipway := runOf("real", 0, sideSlipway, 80, 100)
	slipway.Steps = []span{{"pivot", 90, 100}, {"wait-nodes", 60, 80}}
	var out strings.Builder
	if err := printTables(&out, []measured{runOf("real", 0, sideMake, 100, 200), slipway}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| real | Ready nodes | 100 s (100–100) | 80 s (80–80) | 0.80 (0.80–0.80) | 1 |",
		"| real | the settled pivot | 200 s (200–200) | 100 s (100–100) | 0.50 (0.50–0.50) | 1 |",
		"| wait-nodes | 60.0 | 20.0 | 80.0 |\n| pivot | 90.0 | 10.0 | 100.0 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables have no %q:\n%s", want, out.String())
		}
	}
}

func TestEachSideIsFirstInEveryOtherPair(t *testing.T) {
	if first, second := sidesOf("", 0), sidesOf("", 1); first[0] == second[0] || first[0] != second[1] {
		t.Errorf("the order is %v, then %v", first, second)
	}
}

func TestFiguresAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	if runs, err := readRuns(file); err != nil || runs != nil {
		t.Fatalf("without a file: %v, %v", runs, err)
	}
	if err := writeRuns(file, []measured{runOf("real", 0, sideMake, 1, 2)}); err != nil {
		t.Fatal(err)
	}
	if runs, err := readRuns(file); err != nil || len(runs) != 1 || runs[0].Marks[markPivot] != 2 {
		t.Errorf("read again: %v, %v", runs, err)
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRuns(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged file: %v, want an error that names it", err)
	}
}

// The Makefile's programs are those that the lab's management cluster is made for, as the guide has them: clusterctl
// moves the objects of a core of its own line alone, while Slipway's library is that of the newer line.
func TestToolsAreOfTheVersionsOfTheLab(t *testing.T) {
	tools, lab := required(t, "tools/go.mod"), required(t, "../../lab/go.mod")
	for _, module := range []string{"sigs.k8s.io/cluster-api", "k8s.io/kubernetes"} {
		if is, want := tools[module], lab[module]; is == "" || is != want {
			t.Errorf("tools/go.mod has %s %q, and lab/go.mod %q", module, is, want)
		}
	}
}

func required(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			versions[words[0]] = words[1]
		}
	}
	return versions
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []options{{pairs: 0, paces: []string{"real"}}, {pairs: 1, paces: []string{"slow"}},
		{pairs: 1, paces: []string{"real"}, only: "kind"}} {
		if err := o.check(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if err := (options{pairs: 1, paces: []string{"fast", "real"}, only: sideMake}).check(); err != nil {
		t.Error(err)
	}
}

func TestTheMakefilesConfiguration(t *testing.T) {
	i := info{ProviderRepository: "/repository", Versions: map[string]string{"CAPI": "v1", "CABPT": "v2", "CACPPT": "v3"}}
	if _, err := clusterctlConfig(i); err == nil || !strings.Contains(err.Error(), "CAPH") {
		t.Errorf("a lab without a version of CAPH: %v", err)
	}
	i.Versions["CAPH"] = "v4"
	config, err := clusterctlConfig(i)
	if err != nil {
		t.Fatal(err)
	}
	want := "/repository/infrastructure-hetzner/v4/infrastructure-components.yaml"
	if !strings.Contains(string(config), want) {
		t.Errorf("no %s in %s", want, config)
	}
	if _, err := makeVariables(i); err == nil {
		t.Error("a lab without versions of the charts is accepted")
	}
	shown := []byte(`{"settings": [{"variable": "TALOS_VERSION", "value": "v1.12.2"}]}`)
	if is, err := variable(shown, "TALOS_VERSION"); err != nil || is != "v1.12.2" {
		t.Errorf("TALOS_VERSION is %q, %v", is, err)
	}
	if _, err := variable(shown, "OTHER"); err == nil {
		t.Error("an unknown variable has a value")
	}
}
