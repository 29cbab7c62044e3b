//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

type counter struct{ n atomic.Int64 }

func (c *counter) add() { c.n.Add(1) }

// look is all that there is in the environment, in a form that is the same for two environments with the same state:
// without times, ids, versions, addresses of this test's servers and keys.
func (q *quick) look() string {
	var lines []string
	for name, api := range map[string]*kubetest.Server{"management": q.Management, "workload": q.Workload} {
		for path, o := range api.All() {
			if o.GetKind() == "Lease" { // it says who was at work when
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", name, path, plainObject(o.Object)))
		}
	}
	for _, wall := range q.Hetzner.Firewalls() {
		wall.ID, wall.Created = 0, time.Time{}
		data, _ := json.Marshal(wall)
		lines = append(lines, "firewall "+string(data))
	}
	made := q.Made()
	for _, what := range slices.Sorted(maps.Keys(made)) {
		lines = append(lines, fmt.Sprintf("made %s %d times", what, made[what]))
	}
	creates := 0
	for _, w := range q.Hetzner.Writes() {
		if w == "POST /firewalls" {
			creates++
		}
	}
	lines = append(lines, fmt.Sprintf("made firewalls %d times", creates))
	slices.Sort(lines)
	all := strings.Join(lines, "\n")
	for of, url := range map[string]string{"management": q.Management.URL, "workload": q.Workload.URL,
		"hetzner": q.Hetzner.URL} {
		all = strings.ReplaceAll(all, url, of)
	}
	return all
}

// plainObject is an object without what differs from run to run.
func plainObject(o map[string]any) string {
	metadata, _ := o["metadata"].(map[string]any)
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, name)
	}
	if labels, ok := metadata["labels"].(map[string]any); ok {
		delete(labels, "createdAt")
		delete(labels, "modifiedAt")
	}
	if notes, ok := metadata["annotations"].(map[string]any); ok {
		delete(notes, kube.OwnerAnnotation)
		delete(notes, kube.RecoveredAnnotation)
	}
	if data, ok := o["data"].(map[string]any); ok && o["kind"] == "Secret" {
		for key := range data {
			data[key] = "…"
		}
	}
	text, _ := json.Marshal(o)
	return string(text)
}

// difference lists the lines that only one of two texts has.
func difference(a, b string) string {
	var out []string
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, line := range left {
		if !slices.Contains(right, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range right {
		if !slices.Contains(left, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}
