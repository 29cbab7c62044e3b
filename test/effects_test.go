package test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// everyEffectIsRecorded compares the effects that the runs so far recorded with the records of the receivers: the audit
// logs of both clusters' API servers and the request log of the Hetzner API. Every request must have an effect, and
// every effect a request.
func everyEffectIsRecorded(t *testing.T, c *command) {
	told := map[string]int{}
	for _, l := range effects(t, c) {
		switch l.System {
		case effect.Hetzner, effect.Management, effect.Workload:
			name := strings.Replace(l.Name(), " apply ", " patch ", 1)
			if l.System == effect.Hetzner && l.Verb == "create" {
				name, _, _ = strings.Cut(name, "/") // the log has no bodies, and they have the names
			}
			told[name]++
		}
	}
	seen := map[string]int{}
	for _, line := range jsonLines[requestLine](t, filepath.Join(c.state, "lab", "hetzner-requests.jsonl")) {
		if line.Write && ours(line.Actor) && !isDoctorsProbe(line.Method, line.Path) {
			seen[line.name()]++
		}
	}
	logs, err := filepath.Glob(filepath.Join(c.state, "lab", "clusters", "*", "audit*"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("audit logs: %v, %v; at least those of two clusters are expected", logs, err)
	}
	for _, log := range logs {
		system := effect.Workload
		if strings.HasSuffix(filepath.Dir(log), "-mgmt") {
			system = effect.Management
		}
		for _, line := range jsonLines[auditLine](t, log) {
			if line.changes() && ours(line.UserAgent) {
				seen[string(system)+" "+line.Verb+" "+line.object()]++
			}
		}
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(merged(told, seen))) {
		total += seen[name]
		if told[name] != seen[name] {
			t.Errorf("%s was asked for %d times, and written down %d times", name, seen[name], told[name])
		}
	}
	t.Logf("%d changes of Hetzner and both clusters, %d kinds of them, each written down", total, len(seen))
	if total < 100 {
		t.Error("so few cannot be a bootstrap")
	}
}

// effects are the recorded effects of every run so far, each once.
func effects(t *testing.T, c *command) []effect.Line {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "effects.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no run wrote down what it changed: %v, %v", paths, err)
	}
	var calls []effect.Line
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v, %v", path, info.Mode(), err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := effect.Read(file)
		file.Close()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, l := range lines {
			if l.Phase == effect.Leaves {
				calls = append(calls, l)
			}
		}
	}
	return calls
}

func merged(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// requestLine is a line of the simulated Hetzner API's log.
type requestLine struct {
	Method, Path, Actor string
	Write               bool
}

func (l requestLine) name() string {
	words := strings.Split(strings.TrimPrefix(l.Path, "/v1/"), "/")
	if len(words) > 1 {
		words[1] = "*"
	}
	switch {
	case len(words) == 4:
		return "hetzner " + words[3] + " " + words[0] + "/*"
	case l.Method == http.MethodPost:
		return "hetzner create " + words[0]
	}
	return "hetzner " + map[string]string{http.MethodDelete: "delete", http.MethodPut: "update"}[l.Method] + " " +
		strings.Join(words, "/")
}

// auditLine is a line of a kube-apiserver's audit log.
type auditLine struct {
	Verb, UserAgent, RequestURI string
	ObjectRef                   struct{ Resource, APIGroup, Namespace, Name, Subresource string }
}

// changes reports whether a request changes what a run is to write down. A Lease says who is at work, not what was done.
func (l auditLine) changes() bool {
	return l.ObjectRef.APIGroup != "coordination.k8s.io" && !slices.Contains([]string{"get", "list", "watch"}, l.Verb) &&
		!strings.Contains(l.RequestURI, "dryRun=All")
}

func (l auditLine) object() string {
	o := l.ObjectRef
	words := []string{o.Resource}
	if o.APIGroup != "" {
		words[0] += "." + o.APIGroup
	}
	if o.Resource == "namespaces" {
		o.Namespace = ""
	}
	for _, w := range []string{o.Namespace, o.Name, o.Subresource} {
		if w != "" {
			words = append(words, w)
		}
	}
	return effect.Plain(strings.Join(words, "/"))
}

// jsonLines reads a file of one JSON value a line.
func jsonLines[T any](t *testing.T, path string) []T {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []T
	for in := json.NewDecoder(file); in.More(); {
		var line T
		if err := in.Decode(&line); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, line)
	}
	return all
}
