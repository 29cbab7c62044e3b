package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// FaultKind is something that can go wrong in the lab. The lab, a module of its own, checks the same: a test compares
// the two.
type FaultKind struct {
	Name  string
	Doc   string
	needs []string // keys
	takes []string // keys, besides
}

// Keys are all that the kind takes, those that it needs first.
func (k FaultKind) Keys() []string { return slices.Concat(k.needs, k.takes, []string{"for"}) }

// Keys of several kinds.
var (
	hitKeys     = []string{"skip", "times", "probability", "seed"}
	requestKeys = slices.Concat([]string{"method", "path", "actor"}, hitKeys)
)

// FaultKinds are all kinds.
func FaultKinds() []FaultKind {
	return []FaultKind{
		{Name: "error", Doc: "a request to Hetzner's API is answered with a status, code and message, without effect",
			takes: slices.Concat([]string{"status", "code", "message"}, requestKeys)},
		{Name: "rate-limit", Doc: "a request is answered with 429 rate_limit_exceeded; delay: until RateLimit-Reset",
			takes: slices.Concat([]string{"delay"}, requestKeys)},
		{Name: "lost-reply", Doc: "a request takes effect, and its connection closes without a reply",
			takes: requestKeys},
		{Name: "timeout", Doc: "a request has no effect and gets no answer for delay, then 504",
			takes: slices.Concat([]string{"delay"}, requestKeys)},
		{Name: "reset", Doc: "a request has no effect, and its connection is reset", takes: requestKeys},
		{Name: "stale-lists", Doc: "lists show what was there delay ago", needs: []string{"delay"}, takes: requestKeys},
		{Name: "out-of-stock", Doc: "servers of a type in a location cannot be ordered",
			takes: slices.Concat([]string{"serverType", "location"}, hitKeys)},
		{Name: "action-error", Doc: "an action of Hetzner's ends in error", takes: slices.Concat([]string{"command",
			"code", "message"}, hitKeys)},
		{Name: "slow-boot", Doc: "a server runs, and its system starts only after delay", needs: []string{"delay"},
			takes: slices.Concat([]string{"server"}, hitKeys)},
		{Name: "vanish-server", Doc: "a server is gone, with its record, without a request",
			needs: []string{"server"}, takes: []string{"seed"}},
		{Name: "vanish-load-balancer", Doc: "a load balancer is gone, with its record, without a request; its Primary IP " +
			"stays",
			needs: []string{"loadBalancer"}, takes: []string{"seed"}},
		{Name: "low-budget", Doc: "few requests are left of the project's rate limit, of which some come back each second; " +
			"it has its limit again when the fault ends",
			needs: []string{"remaining"}, takes: []string{"limit"}},
		{Name: "apiserver-restart", Doc: "kube-apiservers are killed and start again, at once or after for",
			takes: []string{"cluster", "server", "seed"}},
		{Name: "management-away", Doc: "a management cluster's kube-apiserver accepts connections and does not answer",
			takes: []string{"cluster"}},
		{Name: "webhook-unready", Doc: "the webhooks behind a Service refuse connections", needs: []string{"service"},
			takes: []string{"cluster"}},
		{Name: "cluster-ips-away", Doc: "no ClusterIP answers on the host's network of a server: only probes that name one " +
			"meet it, as the canary node's of an upgrade of Cilium",
			needs: []string{"server"}},
		{Name: "expired-kubeconfig", Doc: "the client certificate in a kubeconfig has expired an hour ago",
			needs: []string{"cluster", "file"}},
	}
}

// FaultKindNames lists the kinds of faults, in the order of the help.
func FaultKindNames() (names []string) {
	for _, k := range FaultKinds() {
		names = append(names, k.Name)
	}
	return names
}

// FaultKindOf finds a kind. Every error is a usageError.
func FaultKindOf(name string) (FaultKind, error) {
	kinds := FaultKinds()
	if i := slices.IndexFunc(kinds, func(k FaultKind) bool { return k.Name == name }); i >= 0 {
		return kinds[i], nil
	}
	names := FaultKindNames()
	return FaultKind{}, usage.Errorf("there is no fault %q%s; there are %s", name, usage.DidYouMean("", name, names),
		strings.Join(names, ", "))
}

// faultKey is a field of a fault.
type faultKey struct {
	Doc  string
	read func(string) (any, error)
}

// FaultKeys are the fields of all kinds.
func FaultKeys() map[string]faultKey {
	text := func(s string) (any, error) { return s, nil }
	number := func(s string) (any, error) { return strconv.ParseUint(s, 10, 63) }
	chance := func(s string) (any, error) { return strconv.ParseFloat(s, 64) }
	duration := func(s string) (any, error) { _, err := time.ParseDuration(s); return s, err }
	return map[string]faultKey{
		"actor":        {"only requests whose user agent contains this", text},
		"cluster":      {"the cluster's name", text},
		"code":         {"the error code of Hetzner's API", text},
		"command":      {"of the action, as create_server", text},
		"delay":        {"a duration, as 1m30s", duration},
		"file":         {"the kubeconfig, in the state folder or by its absolute path", text},
		"for":          {"how long the fault is in force, as 30s; without it until it is removed", duration},
		"limit":        {"the most requests that can be left, and that come back in an hour; without it as before", number},
		"loadBalancer": {"a pattern of the load balancer's name", text},
		"location":     {"of the server, as nbg1", text},
		"message":      {"of the error", text},
		"method":       {"only requests with this method: GET, POST, PUT or DELETE", text},
		"path":         {"only requests to this path, a pattern without /v1: /servers/*", text},
		"probability":  {"of each hit, 0 to 1", chance},
		"remaining":    {"requests that are left at first", number},
		"seed":         {"makes the same choices at every run", number},
		"server":       {"a pattern of the server's name", text},
		"serverType":   {"of the server, as cx33", text},
		"service":      {"a pattern of namespace/name of a Service: caph-system/*", text},
		"skip":         {"let so many hits pass first", number},
		"status":       {"of the answer, as 503", number},
		"times":        {"end after so many hits", number},
	}
}

// Describe writes what a kind takes.
func (k FaultKind) Describe(line func(format string, args ...any)) {
	keys := FaultKeys()
	line("fault %s: %s", k.Name, k.Doc)
	for _, key := range k.Keys() {
		need := ""
		if slices.Contains(k.needs, key) {
			need = " (needed)"
		}
		line("  %s=\t%s%s", key, keys[key].Doc, need)
	}
}

// check refuses a key that the kind does not take.
func (k FaultKind) check(key string) error {
	if slices.Contains(k.Keys(), key) {
		return nil
	}
	return usage.Errorf("the fault %s has no %q%s; it takes %s", k.Name, key, usage.DidYouMean("", key, k.Keys()),
		k.usage())
}

// usage is "delay, for", with what is needed first, and marked.
func (k FaultKind) usage() string {
	var words []string
	for _, key := range k.Keys() {
		if slices.Contains(k.needs, key) {
			key = fmt.Sprintf("%s (needed)", key)
		}
		words = append(words, key)
	}
	return strings.Join(words, ", ")
}
