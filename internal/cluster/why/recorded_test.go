package why

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write docs/waiting.md again")

// recorded are the situations in testdata, in the order of a bootstrap. TestRecordSituations (test/record_test.go)
// records them.
func recorded() []struct {
	file, happened string
	ends           bool // waiting does not help, so a run ends
} {
	return []struct {
		file, happened string
		ends           bool
	}{
		{"token-refused", "The token was revoked while Cluster API works with it.", true},
		{"secret-missing", "The Secret with the token is gone from the management cluster.", true},
		{"network-unavailable", "Hetzner's API answers 503 while the network is created.", false},
		{"load-balancer-limit", "The project may not have another load balancer.", true},
		{"load-balancer-stock", "Load balancers are out of stock.", false},
		{"paused", "A user paused the Cluster object.", false},
		{"out-of-stock", "The server type is out of stock.", false},
		{"placement", "No host is left that satisfies the placement group.", false},
		{"server-limit", "The project may not have another server.", true},
		{"hetzner-unavailable", "Hetzner's API answers 503 while servers are ordered.", false},
		{"order-refused", "Hetzner does not accept what is ordered.", true},
		{"image-unknown", "A user removed the label from the image.", true},
		{"image-found-again", "The image has its label again, and CAPH has not looked since.", false},
		{"image-ambiguous", "A second image has the same label.", true},
		{"rate-limit", "The project's requests of the hour are used up.", false},
		{"one-out-of-stock", "The server type is out of stock after two of three servers.", false},
		{"server-off", "A user turned servers off.", false},
		{"all-run", "The nodes are there, Cilium is not installed yet.", false},
		{"api-away", "The kube-apiservers restart.", false},
		{"management-away", "The management cluster does not answer.", false},
		{"hetzner-away", "Hetzner's API does not answer the command.", false},
		{"uninitialized", "Cilium runs, the cloud controller manager is not installed yet.", false},
		{"pod-without-node", "A Pod of the system fits no node.", false},
		{"balancer-refuses-target", "A new server cannot be put behind the load balancer.", false},
		{"slow-boot", "A new server takes long to boot.", false},
		{"configuration-refused", "A strategic patch has a mistake.", true},
		{"well", "Nothing is waited for.", false},
	}
}

func load(t *testing.T, name string) Situation {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var s Situation
	if err := yaml.UnmarshalStrict(data, &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// TestRecordedSituations makes docs/waiting.md of what was recorded, and holds it to what is there. That a situation
// ends a wait is said here, not taken from the code.
func TestRecordedSituations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) != len(recorded()) {
		t.Errorf("%d files of situations for %d (%v)", len(files), len(recorded()), err)
	}
	var doc strings.Builder
	doc.WriteString(docHead)
	for _, r := range recorded() {
		s := load(t, r.file)
		a := Explain(s)
		if terminal := a.Terminal(s.At.Add(-24 * time.Hour)); (terminal != nil) != r.ends {
			t.Errorf("%s: that it is terminal is said to be %v, and it is %v", r.file, r.ends, terminal)
		}
		sentence, do := a.Sentence(), toDo(a, r.ends)
		if r.file == "well" {
			if sentence != "" {
				t.Errorf("a cluster that is whole waits: %s", sentence)
			}
			continue
		}
		if sentence == "" {
			t.Errorf("%s: nothing is said", r.file)
		}
		fmt.Fprintf(&doc, "## %s\n\n> %s\n\n%s\n\n", strings.TrimSuffix(r.happened, "."),
			strings.ReplaceAll(sentence, "<", "\\<"), do)
	}
	path := filepath.Join("..", "..", "..", "docs", "waiting.md")
	text := strings.TrimRight(doc.String(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(path); err != nil || string(is) != text {
		t.Errorf("docs/waiting.md is not what the situations say (%v): go test ./internal/cluster/why -update writes it\n%s", err,
			text)
	}
}

const docHead = `# Why it waits

For operators who see a run wait: what each message means, and what to do about it. To see the current one:

` + "```sh" + `
bootstrap status           # what is missing and why, in one sentence, and what to do
bootstrap status --watch   # again whenever it changes
` + "```" + `

Every wait of a run, and ` + "`status`" + `, say in one sentence what is missing and why. The sentence is composed in one
place (internal/cluster/why) from Cluster API's objects, the nodes and Pods, their events, and the answers of Hetzner and
Talos. The situations below were produced in the lab and recorded; a test writes this page from the recordings.

Where waiting cannot help, the run ends at once and says what to do; the same command resumes it. A cause that was
observed before the run began does not end it, as it may have been removed since: the run then waits until the
controller has tried again.

`

func toDo(a Answer, ends bool) string {
	var all []string
	for _, f := range a.Findings {
		if f.Do != "" {
			all = append(all, strings.ToUpper(f.Do[:1])+f.Do[1:]+".")
		}
	}
	do := strings.Join(all, " ")
	switch {
	case ends:
		return "The run ends. " + do
	case do == "":
		return "Nothing to do: it passes by itself, or a later step resolves it."
	}
	return do
}
