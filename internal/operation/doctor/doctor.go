// Package doctor checks before a run whether it can succeed: token, project, names, address ranges, versions, files
// and sources. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Verdict is the result of an examination.
type Verdict string

// The verdicts. What could not be determined is Unknown, never OK.
const (
	OK      Verdict = "ok"
	Failed  Verdict = "failed"
	Unknown Verdict = "unknown"
)

// Finding is what one check of the doctor found.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	WayOut  string  `json:"wayOut,omitempty"`
	Input   bool    `json:"-"` // what failed is a file of the operator
}

// Count is how many findings have a verdict.
func Count(found []Finding, verdict Verdict) (n int) {
	for _, f := range found {
		if f.Verdict == verdict {
			n++
		}
	}
	return n
}

// check is one question that the doctor asks. What it finds does not depend on other checks.
type check struct {
	name    string
	of      []string // the steps that it matters to; nil: to all
	examine func(context.Context) Finding
}

func ok(format string, args ...any) Finding {
	return Finding{Verdict: OK, Reason: fmt.Sprintf(format, args...)}
}

func failed(wayOut, format string, args ...any) Finding {
	return Finding{Verdict: Failed, Reason: fmt.Sprintf(format, args...), WayOut: wayOut}
}

func unknown(wayOut, format string, args ...any) Finding {
	return Finding{Verdict: Unknown, Reason: fmt.Sprintf(format, args...), WayOut: wayOut}
}

// examineWithin bounds the whole examination: a person waits for it.
const examineWithin = 4 * time.Second

// Doctor examines what a bootstrap would meet, before it begins. It changes nothing.
type Doctor struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
	routes  func() ([]netip.Prefix, error) // of this machine, without the default
	http    *http.Client
	github  string // address of GitHub's API
	within  time.Duration
	wanted  []string // steps; nil: all
	// tokenAlone leaves out all checks but that of the token.
	tokenAlone bool
	// recorded is the reservation that this state folder made; 0: none that it knows of.
	recorded int64
	// selfManaged tells that the cluster has passed its pivot.
	selfManaged bool
}

// New makes no request.
func New(cfg config.Config, tools platform.Tools, sources render.Sources) *Doctor {
	return &Doctor{
		cfg: cfg, tools: tools, sources: sources, routes: ownRoutes, http: http.DefaultClient,
		github: "https://api.github.com", within: examineWithin,
	}
}

// Examine asks all questions at once. The findings are in a fixed order.
func (d *Doctor) Examine(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, d.within, fmt.Errorf("no answer within %s", d.within))
	defer cancel()
	checks := d.checks()
	found := make([]Finding, len(checks))
	var asking sync.WaitGroup
	for i, c := range checks {
		asking.Go(func() {
			if found[i] = unknown("export HCLOUD_TOKEN",
				"without a token nothing can be asked of Hetzner"); d.tools.Hetzner != nil || !atHetzner(c.name) {
				found[i] = inTime(ctx, c)
			}
			found[i].Check = c.name
		})
	}
	asking.Wait()
	return found
}

// inTime is a check's finding; that there is none in time is one.
func inTime(ctx context.Context, c check) Finding {
	f, late := kube.Within(ctx, func() (Finding, error) { return c.examine(ctx), nil })
	if late != nil {
		return unknown("ask again, or use --skip-doctor", "%v", late)
	}
	return f
}

// What For takes beside steps: operations that make servers outside of the graph.
const (
	ForServer  = "a server"  // one more of an existing cluster
	ForRestore = "a restore" // a cluster's resources may be left of it, and are not in the way
)

// For leaves out what does not matter to any of these steps.
func (d *Doctor) For(wanted []string) *Doctor {
	d.wanted = wanted
	return d
}

// TokenAlone leaves out all checks but whether Hetzner takes the token, for writing too.
func (d *Doctor) TokenAlone() *Doctor {
	d.tokenAlone = true
	return d
}

// checks are those that matter, what is local first.
func (d *Doctor) checks() []check {
	releases := []string{"cilium", "hcloud-ccm", "talos-ccm", "addons"}
	all := []check{
		{"versions", nil, d.versions},
		{"address-ranges", []string{"apply"}, d.addressRanges},
		{"manifests", []string{"apply"}, d.manifests},
		{"schemas", []string{"apply"}, d.schemas},
		{"patches", []string{"apply"}, d.patches},
		{"helm-values", releases, d.helmValues},
		{"management", []string{"kind-create", ForRestore}, d.management},
		{"engine", []string{"kind-create", ForRestore}, d.engine},
		{"providers", []string{"capi-init", ForRestore}, d.providersReachable},
		{"charts", releases, d.chartsReachable},
		{"chart-values", releases, d.chartValues},
		{"github-budget", []string{"capi-init", ForRestore}, d.githubBudget},
		{"token", nil, d.token},
		{"project", nil, d.project},
		{"reservation", []string{"reserve"}, d.reservation},
		{"server-type", []string{"apply", "image", ForServer, ForRestore}, d.serverType},
		{"capacity", []string{"apply", ForRestore}, d.capacity},
		{"limits", []string{"apply", ForServer, ForRestore}, d.limits},
		{"image", []string{"apply", "image", ForServer, ForRestore}, d.image},
		{workerPoolsCheck, []string{"workers", ForRestore}, d.workerPools},
		{"names", []string{"apply"}, d.names},
		{"networks", []string{"apply", ForRestore}, d.networks},
		{"hetzner-budget", nil, d.hetznerBudget},
	}
	return slices.DeleteFunc(all, func(c check) bool {
		if c.name == workerPoolsCheck && len(d.cfg.Workers) == 0 || d.tokenAlone && c.name != "token" {
			return true
		}
		return d.wanted != nil && c.of != nil &&
			!slices.ContainsFunc(c.of, func(step string) bool { return slices.Contains(d.wanted, step) })
	})
}

// atHetzner tells the checks that ask Hetzner alone.
func atHetzner(name string) bool {
	return slices.Contains([]string{"token", "project", "reservation", "server-type", "capacity", "image", workerPoolsCheck, "names",
		"networks", "hetzner-budget"}, name)
}
