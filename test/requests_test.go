package test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writes counts the command's changing requests in the lab's records: the Hetzner request log and the audit logs of
// every kube-apiserver.
func writes(t *testing.T, c *command) []string {
	t.Helper()
	var found []string
	each := func(path string, f func(line []byte)) {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		scanner := bufio.NewScanner(file)
		scanner.Buffer(nil, 4<<20)
		for scanner.Scan() {
			f(scanner.Bytes())
		}
	}
	for _, r := range hetznerRequests(t, c) {
		if r.Write && ours(r.Actor) && !isDoctorsProbe(r.Method, r.Path) {
			found = append(found, "hetzner "+r.Method+" "+r.Path)
		}
	}
	logs, err := filepath.Glob(filepath.Join(c.state, "lab", "clusters", "*", "audit*"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("audit logs: %v, %v; at least those of two clusters are expected", logs, err)
	}
	for _, log := range logs {
		each(log, func(line []byte) {
			var r struct {
				Verb, UserAgent, RequestURI string
			}
			if json.Unmarshal(line, &r) == nil && !slices.Contains([]string{"get", "list", "watch"}, r.Verb) &&
				ours(r.UserAgent) {
				found = append(found, filepath.Base(filepath.Dir(log))+" "+r.Verb+" "+r.RequestURI)
			}
		})
	}
	return found
}

// isDoctorsProbe recognizes the doctor's check of the token's permission to write:
// it deletes a resource that cannot exist.
func isDoctorsProbe(method, path string) bool {
	return method == http.MethodDelete && strings.TrimPrefix(path, "/v1") == "/placement_groups/0"
}

// added returns the lines of a later list that are not in an earlier one of the same
// logs, which are listed one after another.
func added(before, after []string) []string {
	for _, w := range before {
		if i := slices.Index(after, w); i >= 0 {
			after = slices.Delete(slices.Clone(after), i, i+1)
		}
	}
	return after
}

// ours says whether a request is the command's: by its name, or by those of its libraries. The lab's kubelets, whose
// name has the same prefix, are excluded.
func ours(agent string) bool {
	agent = strings.ToLower(agent)
	return !strings.HasPrefix(agent, "slipway-lab") &&
		slices.ContainsFunc([]string{"slipway", "clusterctl", "helm", "bootstrap/"}, func(name string) bool {
			return strings.Contains(agent, name)
		})
}
