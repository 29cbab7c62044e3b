package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// faultKind is something that can go wrong in the lab. The lab, a module of its own, checks the same: a test compares
// the two.
type faultKind struct {
	name  string
	doc   string
	needs []string // keys
	takes []string // keys, besides
}

// keys are all that the kind takes, those that it needs first.
func (k faultKind) keys() []string { return slices.Concat(k.needs, k.takes, []string{"for"}) }

// Keys of several kinds.
var (
	hitKeys     = []string{"skip", "times", "probability", "seed"}
	requestKeys = slices.Concat([]string{"method", "path", "actor"}, hitKeys)
)

// faultKinds are all kinds.
func faultKinds() []faultKind {
	return []faultKind{
		{name: "error", doc: "a request to Hetzner's API is answered with a status, code and message, without effect",
			takes: slices.Concat([]string{"status", "code", "message"}, requestKeys)},
		{name: "rate-limit", doc: "a request is answered with 429 rate_limit_exceeded; delay: until RateLimit-Reset",
			takes: slices.Concat([]string{"delay"}, requestKeys)},
		{name: "lost-reply", doc: "a request takes effect, and its connection closes without a reply",
			takes: requestKeys},
		{name: "timeout", doc: "a request has no effect and gets no answer for delay, then 504",
			takes: slices.Concat([]string{"delay"}, requestKeys)},
		{name: "reset", doc: "a request has no effect, and its connection is reset", takes: requestKeys},
		{name: "stale-lists", doc: "lists show what was there delay ago", needs: []string{"delay"}, takes: requestKeys},
		{name: "out-of-stock", doc: "servers of a type in a location cannot be ordered",
			takes: slices.Concat([]string{"serverType", "location"}, hitKeys)},
		{name: "action-error", doc: "an action of Hetzner's ends in error", takes: slices.Concat([]string{"command",
			"code", "message"}, hitKeys)},
		{name: "slow-boot", doc: "a server runs, and its system starts only after delay", needs: []string{"delay"},
			takes: slices.Concat([]string{"server"}, hitKeys)},
		{name: "vanish-server", doc: "a server is gone, with its record, without a request",
			needs: []string{"server"}, takes: []string{"seed"}},
		{name: "apiserver-restart", doc: "kube-apiservers are killed and start again, at once or after for",
			takes: []string{"cluster", "server", "seed"}},
		{name: "management-away", doc: "a management cluster's kube-apiserver accepts connections and does not answer",
			takes: []string{"cluster"}},
		{name: "webhook-unready", doc: "the webhooks behind a Service refuse connections", needs: []string{"service"},
			takes: []string{"cluster"}},
		{name: "expired-kubeconfig", doc: "the client certificate in a kubeconfig has expired an hour ago",
			needs: []string{"cluster", "file"}},
	}
}

func faultKindNames() (names []string) {
	for _, k := range faultKinds() {
		names = append(names, k.name)
	}
	return names
}

// faultKindOf finds a kind. Every error is a usageError.
func faultKindOf(name string) (faultKind, error) {
	kinds := faultKinds()
	if i := slices.IndexFunc(kinds, func(k faultKind) bool { return k.name == name }); i >= 0 {
		return kinds[i], nil
	}
	names := faultKindNames()
	return faultKind{}, usagef("there is no fault %q%s; there are %s", name, didYouMean("", name, names),
		strings.Join(names, ", "))
}

// faultKey is a field of a fault.
type faultKey struct {
	doc  string
	read func(string) (any, error)
}

// faultKeys are the fields of all kinds.
func faultKeys() map[string]faultKey {
	text := func(s string) (any, error) { return s, nil }
	number := func(s string) (any, error) { return strconv.ParseUint(s, 10, 63) }
	chance := func(s string) (any, error) { return strconv.ParseFloat(s, 64) }
	duration := func(s string) (any, error) { _, err := time.ParseDuration(s); return s, err }
	return map[string]faultKey{
		"actor":       {"only requests whose user agent contains this", text},
		"cluster":     {"the cluster's name", text},
		"code":        {"the error code of Hetzner's API", text},
		"command":     {"of the action, as create_server", text},
		"delay":       {"a duration, as 1m30s", duration},
		"file":        {"the kubeconfig, in the state folder or by its absolute path", text},
		"for":         {"how long the fault is in force, as 30s; without it until it is removed", duration},
		"location":    {"of the server, as nbg1", text},
		"message":     {"of the error", text},
		"method":      {"only requests with this method: GET, POST, PUT or DELETE", text},
		"path":        {"only requests to this path, a pattern without /v1: /servers/*", text},
		"probability": {"of each hit, 0 to 1", chance},
		"seed":        {"makes the same choices at every run", number},
		"server":      {"a pattern of the server's name", text},
		"serverType":  {"of the server, as cx33", text},
		"service":     {"a pattern of namespace/name of a Service: caph-system/*", text},
		"skip":        {"let so many hits pass first", number},
		"status":      {"of the answer, as 503", number},
		"times":       {"end after so many hits", number},
	}
}

// describe writes what a kind takes.
func (k faultKind) describe(line func(format string, args ...any)) {
	keys := faultKeys()
	line("fault %s: %s", k.name, k.doc)
	for _, key := range k.keys() {
		need := ""
		if slices.Contains(k.needs, key) {
			need = " (needed)"
		}
		line("  %s=\t%s%s", key, keys[key].doc, need)
	}
}

// check refuses a key that the kind does not take.
func (k faultKind) check(key string) error {
	if slices.Contains(k.keys(), key) {
		return nil
	}
	return usagef("the fault %s has no %q%s; it takes %s", k.name, key, didYouMean("", key, k.keys()), k.usage())
}

// usage is "delay, for", with what is needed first, and marked.
func (k faultKind) usage() string {
	var words []string
	for _, key := range k.keys() {
		if slices.Contains(k.needs, key) {
			key = fmt.Sprintf("%s (needed)", key)
		}
		words = append(words, key)
	}
	return strings.Join(words, ", ")
}
