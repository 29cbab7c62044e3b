package why

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// How CAPH tries again: what it calls impossible every five minutes, errors with a pause that doubles from 5 ms to 1000
// s (controller-runtime's), and after a refusal for too many requests it rests (its flag --rate-limit). FACTS.md §1
// names the lines.
const (
	impossibleAgain = 5 * time.Minute
	longestPause    = 1000 * time.Second
)

// orderedOnce is the reason of CAPH, from v1.0.12 on, for a server that it does not order again by itself: it was out
// of stock, or Hetzner refused the order.
const orderedOnce = "ServerCreateFailedIrrecoverableError"

var (
	// apiCode finds the code in the text of an error of Hetzner's API: "message (code, correlation)".
	apiCode     = regexp.MustCompile(`\(([a-z]+(?:_[a-z]+)*)(?:, [0-9a-zA-Z-]+)?\)`)
	correlation = regexp.MustCompile(`\(([a-z]+(?:_[a-z]+)*), [0-9a-zA-Z-]+\)`)
)

// addServerFindings says what keeps one server of the control plane: the first of what every server goes through that
// is not in order.
func (s Situation) addServerFindings(found *findings, m member) {
	if f, ok := s.server(m); ok {
		if f.Terminal && s.replaced(m) {
			f = s.ofOldTemplate(m, f)
		}
		f.Who = []string{m.name}
		found.add(f)
	}
}

// ofOldTemplate is what is wrong with a Machine whose server was ordered by an older template than the control plane
// has now: its provider replaces it, unless etcd runs and the Machine never was a node.
func (s Situation) ofOldTemplate(m member, f Finding) Finding {
	if s.etcdBegan() && s.unmade(m) {
		f.What += "; the control plane has another template since, and its provider keeps the Machine that was created from the old one"
		return s.deletable(m, f)
	}
	f.What += "; it is of an older template than the control plane has now, and is replaced"
	f.Do, f.Target, f.Terminal, f.weight = "", nil, false, weightTrouble
	return f
}

// deletable is a finding about a Machine without a server that the control plane provider keeps.
func (s Situation) deletable(m member, f Finding) Finding {
	f.Do = "the Machine has no server and nothing is lost with it: a run with --yes deletes it, and so does the target replace-machine"
	f.Target = []string{"replace-machine", m.machine.GetName()}
	f.Seen = s.At // waiting never helps, however old it is
	return f
}

// etcdBegan reports whether the control plane's etcd was started: before that its provider makes another Machine
// beside one that it replaces.
func (s Situation) etcdBegan() bool {
	return capi.Truth(s.ControlPlane, "status", "bootstrapped") || capi.Truth(s.ControlPlane, "status", "initialized")
}

func (s Situation) server(m member) (Finding, bool) {
	switch {
	case m.machine.GetDeletionTimestamp() != nil:
		return s.deleting(m), true
	case m.server == nil:
		return Finding{What: "Cluster API is creating it", weight: weightNormal}, true
	}
	if why := failure(m.server); why != "" {
		f := Finding{
			What: "is given up (" + why + "), and Cluster API does not create it again by itself",
			Do: fmt.Sprintf("kubectl --namespace %s delete machine %s in the management cluster has another one created; "+
				"then run again", m.machine.GetNamespace(), m.machine.GetName()),
			// A server that is given up stays so, whenever that was.
			Terminal: true, Seen: s.At, weight: weightTerminal,
		}
		if s.unmade(m) {
			f = s.deletable(m, f)
		}
		return f, true
	}
	if c, ok := worst(complaints(m.config)); ok && c.reason == configurationFailed {
		return s.unmakeable(m, c), true
	}
	if f, ok := s.failedAction(m); ok {
		return f, true
	}
	if c, ok := worst(complaints(m.server)); ok &&
		(m.state != running || c.severity == "Error" || c.severity == "Warning") {
		return s.translate(m.server, c), true
	}
	switch {
	case s.stopped(m):
		return s.stoppedEtcd(m), true
	case s.left(m):
		return s.leftEtcd(m), true
	}
	return s.booting(m)
}

// unmakeable is a server with a machine configuration that cannot be generated. When that is corrected, the control
// plane provider keeps the Machine that was created from the old one, for ever where etcd runs: it removes no Machine
// while one of them is no node.
func (s Situation) unmakeable(m member, c condition) Finding {
	f := Finding{
		What: "its machine configuration cannot be generated: " + briefly(c.message), Terminal: true,
		Seen: later(c.since, s.lastSeen(m.config.GetName(), c)), weight: weightTerminal,
		Do: "correct the strategic patches in manifests/cluster.yaml, then run again with --yes, which also deletes the " +
			"Machine that was created from the old ones",
	}
	if !s.unmade(m) {
		return f
	}
	f.What += "; the control plane's configuration has been changed since, and its provider keeps the Machine that was created from the old one"
	f = s.deletable(m, f)
	if !s.etcdBegan() { // its provider makes another one beside it, which makes this one surplus
		f.Terminal, f.weight = false, weightTrouble
	}
	return f
}

// booting is how far a server without a problem is.
func (s Situation) booting(m member) (Finding, bool) {
	normal := func(format string, args ...any) (Finding, bool) {
		return Finding{What: fmt.Sprintf(format, args...), weight: weightNormal}, true
	}
	switch m.state {
	case "":
		return normal("is being created")
	case vanished:
		return Finding{What: "its server is gone from the Hetzner project; at its next reconciliation CAPH v1.0.7 creates it again, and " +
			"v1.0.8 and newer give it up",
			weight: weightTrouble}, true
	case running:
	default:
		return normal("its server is %s", m.state)
	}
	switch {
	case m.talos.Trouble != "":
		return normal("its server runs, Talos does not answer yet (%s)", ShortError(m.talos.Trouble))
	case s.unhealthy(m):
		return s.unhealthyEtcd(m), true
	case !m.talos.Etcd:
		return normal("etcd does not run yet")
	}
	return Finding{}, false
}

// failedAction is the newest thing that Hetzner began for the server and could not finish, unless the server runs all
// the same.
func (s Situation) failedAction(m member) (Finding, bool) {
	if m.state == running {
		return Finding{}, false
	}
	id := strings.TrimPrefix(capi.Text(m.server, "spec", "providerID"), "hcloud://")
	var newest *Failure
	for i, a := range s.Failures {
		if strconv.FormatInt(a.Server, 10) == id && (newest == nil || a.Finished.After(newest.Finished)) {
			newest = &s.Failures[i]
		}
	}
	if newest == nil {
		return Finding{}, false
	}
	return Finding{
		What: fmt.Sprintf("Hetzner's action %s failed: %s (%s); its server is %s", newest.Command, newest.Message,
			newest.Code, cmp.Or(m.state, "not created")),
		Do: "if it does not come up, the target replace-machine replaces it", weight: weightTrouble,
	}, true
}

// by names the target that does what Do says.
func (f Finding) by(target ...string) Finding {
	f.Target = target
	return f
}

// worst is the complaint that keeps the others: that Hetzner does not answer CAPH at all, as what else it said is old
// then; an error before a warning before what is only under way.
func worst(all []condition) (condition, bool) {
	for _, c := range all {
		if c.kind == "HCloudTokenAvailable" || c.kind == "HetznerAPIReachable" {
			return c, true
		}
	}
	for _, severity := range []string{"Error", "Warning", "Info", ""} {
		for _, c := range all {
			if c.severity == severity {
				return c, true
			}
		}
	}
	return condition{}, false
}

// translate says a condition of CAPH's in plain language.
func (s Situation) translate(o *unstructured.Unstructured, c condition) Finding {
	seen := s.lastSeen(o.GetName(), c)
	terminal := func(do, format string, args ...any) Finding {
		return Finding{What: fmt.Sprintf(format, args...), Do: do, Terminal: true, Seen: seen, weight: weightTerminal}
	}
	trouble := func(format string, args ...any) Finding {
		return Finding{What: fmt.Sprintf(format, args...), weight: weightTrouble}
	}
	switch c.reason {
	case "HetznerSecretUnreachable":
		return terminal("the target secret, or after a pivot token, creates it", "its Secret with the Hetzner token is not there").by("secret")
	case "HCloudCredentialsInvalid":
		return terminal("give a token with read and write permission; the target secret, or after a pivot token, takes it to Cluster API",
			"Hetzner does not accept the token that Cluster API has").by("secret")
	case "RateLimitExceeded":
		return trouble("Hetzner refuses more requests for now (its limit an hour is used up), so CAPH rests for five minutes")
	case "ImageNotFound", "ImageAmbiguous":
		return s.image(o, c, seen)
	case "ServerTypeNotFound":
		return terminal("choose another SERVER_TYPE", "Hetzner has no server type %s", capi.Text(o, "spec", "type"))
	case "SSHKeyNotFound", "InstanceHasNonExistingPlacementGroup":
		return terminal("correct manifests/cluster.yaml, then run again", "%s", briefly(c.message))
	case "ServerLimitExceeded":
		f := terminal("delete servers that are not needed or have Hetzner raise the limit (Console, Limits), then run again",
			"the project's limit of servers is reached")
		f.limit = true
		return f
	case "BootstrapNotReady":
		return Finding{What: "its machine configuration is not generated yet", weight: weightNormal}
	case "ServerStarting":
		return Finding{What: "its server starts", weight: weightNormal}
	case "ServerOff":
		return trouble("its server is off; CAPH turns it on, for ten minutes")
	case "InstanceTerminated":
		return Finding{What: "its server is being shut down", weight: weightNormal}
	}
	return s.refused(o, c, seen)
}

// image is about an image that CAPH could not choose. It looks every five minutes, so what it says may be old.
func (s Situation) image(o *unstructured.Unstructured, c condition, seen time.Time) Finding {
	name := capi.Text(o, "spec", "imageName")
	if s.Images != nil && s.Images.Found == 1 {
		return Finding{What: fmt.Sprintf("image %s is found now; CAPH looks again within %s", name, spoken(impossibleAgain)),
			weight: weightTrouble}
	}
	if s.Images != nil {
		seen = s.At
	}
	f := Finding{Terminal: true, Seen: seen, weight: weightTerminal}
	if c.reason == "ImageNotFound" {
		f.What, f.Do = "there is no image "+name, "the target image creates it"
		return f.by("image")
	}
	f.What, f.Do = "several images are called "+name+", and CAPH needs exactly one",
		"the target image with --prune keeps the newest"
	return f.by("image", "--prune")
}

// runOrders is who orders a server of the control plane again that CAPH orders once.
const runOrders = "a run that waits for it does"

// refused is a call that Hetzner's API did not take, as CAPH tells of it; the code says what that means.
func (s Situation) refused(o *unstructured.Unstructured, c condition, seen time.Time) Finding {
	again := "CAPH tries again within " +
		spoken(min(longestPause, max(time.Second, s.At.Sub(o.GetCreationTimestamp().Time))))
	if c.reason == orderedOnce {
		again = "CAPH does not order it again by itself; " + runOrders
	}
	f := Finding{weight: weightTrouble}
	what, region := "a "+whatFor(c.kind), capi.Text(o, "status", "region")
	elsewhere := "wait, or add another server type to SERVER_TYPE, or a location to LOCATION, and run again with --yes"
	if whatFor(c.kind) == "load balancer" {
		elsewhere = "wait, or choose another LOAD_BALANCER_TYPE or LOCATION"
	}
	switch codeOf(c.message) {
	case "resource_unavailable":
		if t := capi.Text(o, "spec", "type"); t != "" {
			what = "server type " + t
		}
		f.What = fmt.Sprintf("%s is out of stock%s (%s)", what, at(region), again)
		f.Do = elsewhere
	case "placement_error":
		f.What = fmt.Sprintf("Hetzner has no host%s for another server of the placement group (%s)", at(region), again)
		f.Do = elsewhere
	case "resource_limit_exceeded":
		f = Finding{What: "the project's limit is reached (" + whatFor(c.kind) + ")", Terminal: true, Seen: seen,
			weight: weightTerminal, limit: true,
			Do: "delete what is not needed or have Hetzner raise the limit (Console, Limits), then run again"}
	case "unauthorized", "forbidden":
		f = Finding{What: "Hetzner does not accept the token that Cluster API has", Terminal: true, Seen: seen,
			weight: weightTerminal,
			Do:     "give a token with read and write permission; the target secret, or after a pivot token, takes it to Cluster API"}.by("secret")
	case "rate_limit_exceeded":
		f.What = "Hetzner refuses more requests for now (its limit an hour is used up), so CAPH rests for five minutes"
	case "invalid_input":
		f = Finding{What: "Hetzner refuses the order: " + briefly(doing.ReplaceAllString(c.message, "")), Terminal: true,
			Seen: seen, weight: weightTerminal,
			Do: "correct manifests/cluster.yaml or the configuration, then run again"}
	default:
		f.What = cannot(c) + " (" + again + ")"
		if c.severity != "Error" && c.severity != "Warning" {
			f.What, f.weight = verbatim(c), weightNormal
		}
	}
	return f
}

// cannot is a call that failed, as the person sees it who wants what it is for.
func cannot(c condition) string {
	what, ok := map[string]string{
		"ServerCreateFailedReason": "its server cannot be created", "NetworkReconcileFailed": "the network cannot be created",
		"LoadBalancerCreateFailed":      "the load balancer cannot be created",
		"LoadBalancerUpdateFailed":      "the load balancer cannot be changed",
		"LoadBalancerServiceSyncFailed": "the load balancer's services cannot be set",
		"PlacementGroupsSyncFailed":     "the placement group cannot be created",
		"LoadBalancerAttachFailed":      "it cannot be put behind the load balancer",
		"NetworkAttachFailed":           "it cannot be put into the network",
	}[c.reason]
	if !ok {
		return verbatim(c)
	}
	return what + ": " + briefly(doing.ReplaceAllString(c.message, ""))
}

// doing is what CAPH says it was doing, which repeats names that were written before.
var doing = regexp.MustCompile(`^(?:creating server "[^"]*" \([^)]*\)|failed to create HCloud server [^:]*|creating network "[^"]*"|creating|adding server \d+ to load balancer \d+): `)

func codeOf(message string) string {
	for _, found := range apiCode.FindAllStringSubmatch(message, -1) {
		if strings.Contains(found[1], "_") || found[1] == "unauthorized" || found[1] == "forbidden" {
			return found[1]
		}
	}
	return ""
}

// whatFor is what a condition of CAPH's is about.
func whatFor(kind string) string {
	switch {
	case strings.HasPrefix(kind, "LoadBalancer"):
		return "load balancer"
	case strings.HasPrefix(kind, "Network"):
		return "network"
	case strings.HasPrefix(kind, "PlacementGroups"):
		return "placement group"
	case strings.HasPrefix(kind, "Server"):
		return "server"
	}
	return kind
}

func at(region string) string {
	if region == "" {
		return ""
	}
	return " in " + region
}

// spoken rounds a time up as a person says it, so that a sentence does not change every second: steps of 10 s below a
// minute, of minutes above.
func spoken(d time.Duration) string {
	if d <= time.Minute {
		ten := max(10, (int(d.Seconds())+9)/10*10)
		return fmt.Sprintf("%d s", ten)
	}
	return fmt.Sprintf("%d min", int((d+time.Minute-1)/time.Minute))
}
