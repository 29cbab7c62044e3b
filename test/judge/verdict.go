package judge

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// SameEnd finds where an observation differs from an undisturbed run's. It ignores the allowances.
func SameEnd(undisturbed, is Observation) []string {
	return differences(normalize(undisturbed), normalize(is))
}

// Settled tells whether an end can be compared with: the controllers of its
// clusters have come to terms with the provider.
func Settled(seen Observation) bool {
	for _, cluster := range seen.Clusters {
		for _, o := range cluster.Objects {
			if text(o, "kind") == "HetznerCluster" && conditionsOf(o)["Ready"] != "True" {
				return false
			}
		}
	}
	return true
}

// billed are the requests that create a billed resource, or one that an upload leaves.
var billed = regexp.MustCompile(`^/v1/(servers|networks|load_balancers|placement_groups|ssh_keys|firewalls|` +
	`primary_ips|volumes)$|/actions/create_image$`)

// idSegment is an id in a request's path.
var idSegment = regexp.MustCompile(`/\d+`)

// created counts creations by program and request.
func created(requests []Request) map[string]int {
	made := map[string]int{}
	for _, r := range requests {
		if r.Method == "POST" && r.Status/100 == 2 && billed.MatchString(r.Path) {
			program, _, _ := strings.Cut(r.Actor, "/")
			made[program+" POST "+idSegment.ReplaceAllString(r.Path, "/*")]++
		}
	}
	return made
}

// Upload are the requests of an image's upload: their resources are deleted at its end, and created again if a run was
// killed before.
func Upload(times int) map[string]int {
	return map[string]int{"slipway POST /v1/servers": times, "slipway POST /v1/ssh_keys": times}
}

// MadeOnce finds resources that were created more often than by an undisturbed run, or less often. more is how many
// more requests are permitted; its callers have to justify it.
func MadeOnce(undisturbed, is []Request, more map[string]int) []string {
	want, got := created(undisturbed), created(is)
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	var found []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if got[key] < want[key] || got[key] > want[key]+more[key] {
			found = append(found, fmt.Sprintf("%s: %d times over all runs, not %d", key, got[key], want[key]))
		}
	}
	return found
}

// SameIdentity finds changes of the cluster's identity. It ignores what did not exist before or does not exist any
// more: SameEnd finds that.
func SameIdentity(was, is Observation) []string {
	var found []string
	compare := func(what, a, b string) {
		if a != "" && b != "" && a != b {
			found = append(found, fmt.Sprintf("%s is another one: %s, was %s", what, b, a))
		}
	}
	for _, side := range []Side{Management, Workload} {
		a, b := was.Clusters[side].Identity, is.Clusters[side].Identity
		compare("the "+string(side)+" cluster (kube-system)", a.System, b.System)
		compare("the "+string(side)+" cluster's authority", a.Authority, b.Authority)
	}
	// The keys move with the pivot.
	a, b := was.keys(), is.keys()
	compare("the Talos bundle", a.Bundle, b.Bundle)
	compare("the key of service accounts", a.ServiceAccount, b.ServiceAccount)
	compare("the authority that talosconfig trusts", b.Talos, talosAuthority(is.Files[talosconfig].Data))
	return found
}

// keys is the identity with the keys, on whichever side they lie; on both they must be the same.
func (seen Observation) keys() Identity {
	a, b := seen.Clusters[Management].Identity, seen.Clusters[Workload].Identity
	if a.Bundle != "" && b.Bundle != "" && a.Bundle != b.Bundle {
		return Identity{Bundle: a.Bundle + " and " + b.Bundle}
	}
	return Identity{Bundle: cmp.Or(a.Bundle, b.Bundle), ServiceAccount: cmp.Or(a.ServiceAccount, b.ServiceAccount),
		Talos: cmp.Or(a.Talos, b.Talos)}
}

// OneManager finds moments at which two clusters held the same Cluster object unpaused: both would have made servers.
func OneManager(writes []Write) []string {
	type at struct {
		side Side
		name string
	}
	active := map[at]bool{}
	var found []string
	for _, w := range writes {
		if w.Resource != clusterResource || w.Code/100 != 2 || w.DryRun || w.Paused == nil {
			continue
		}
		here, there := at{w.Side, w.Name}, at{Workload, w.Name}
		if w.Side == Workload {
			there.side = Management
		}
		was := active[here]
		// The answer to a deletion tells of the object as it was: it may wait for its finalizers, and goes on meanwhile.
		active[here] = !*w.Paused
		if active[here] && active[there] && !was {
			found = append(found, fmt.Sprintf("from %s on Cluster %s is unpaused in both clusters: %s by %s in the %s cluster",
				w.Time.Format(time.TimeOnly), w.Name, w.Verb, program(w.Agent), w.Side))
		}
	}
	return found
}

// ours says whether a request or write was the command's, by its name or those of its libraries.
func ours(agent string) bool {
	agent = strings.ToLower(agent)
	return !strings.Contains(agent, "slipway-lab") &&
		slices.ContainsFunc([]string{"slipway", "clusterctl", "helm", "bootstrap/"}, func(name string) bool {
			return strings.Contains(agent, name)
		})
}

func program(agent string) string {
	name, _, _ := strings.Cut(agent, " ")
	return name
}

// Span is when a step was at work.
type Span struct {
	Step       string
	Begin, End time.Time
}

// Attribution says to which steps a write of the command may belong.
type Attribution map[string][]string

// Attribute learns from an undisturbed run which steps write what: those that ran at the time.
func Attribute(undisturbed Observation, spans []Span) Attribution {
	known := Attribution{}
	for _, w := range undisturbed.wrote(time.Time{}) {
		for _, s := range spans {
			if !w.at.Before(s.Begin) && !w.at.After(s.End) && !slices.Contains(known[w.what], s.Step) {
				known[w.what] = append(known[w.what], s.Step)
			}
		}
	}
	return known
}

// written is a write of the command to any system, in normal form.
type written struct {
	at   time.Time
	what string
}

// wrote are the command's successful writes since a time.
func (seen Observation) wrote(since time.Time) []written {
	n := newNormalizer(seen)
	var all []written
	for _, r := range seen.Requests {
		if ours(r.Actor) && r.Status/100 == 2 && r.Time.After(since) {
			all = append(all, written{r.Time, fmt.Sprintf("cloud %s %s", r.Method, idSegment.ReplaceAllString(r.Path, "/*"))})
		}
	}
	for _, x := range seen.Writes {
		if ours(x.Agent) && x.Code/100 == 2 && !x.DryRun && x.Time.After(since) {
			name := path.Join(x.Namespace, x.Name, x.Subresource)
			all = append(all, written{x.Time, n.text(fmt.Sprintf("%s %s %s %s", x.Side, x.Verb, x.Resource, name))})
		}
	}
	return all
}

// NotRepeated finds writes after a crash that only steps make which were done before it.
func NotRepeated(is Observation, crash time.Time, done []string, known Attribution) []string {
	var found []string
	for _, w := range is.wrote(crash) {
		steps := known[w.what]
		again := len(steps) > 0
		for _, s := range steps {
			again = again && slices.Contains(done, s)
		}
		if line := fmt.Sprintf("%s, which only the done step %s writes", w.what, strings.Join(steps, " or ")); again &&
			!slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	return found
}

// secretFiles are the files of a state folder that hold secrets by design.
func secretFiles() []string {
	return []string{"kubeconfig", "talosconfig", "management.kubeconfig", "pivot/*", "backups/*"}
}

// NoSecret finds secrets where they must not be. They are named by what they are, and never printed. Besides the files
// it looks through what is given: output, argument lists, logs.
func NoSecret(is Observation, secrets map[string]string, also map[string][]byte) []string {
	var found []string
	look := func(place string, data []byte) {
		for what, secret := range secrets {
			if len(secret) >= shortestSecret && bytes.Contains(data, []byte(secret)) {
				found = append(found, fmt.Sprintf("%s is in %s", what, place))
			}
		}
	}
	for name, f := range is.Files {
		known := slices.ContainsFunc(secretFiles(),
			func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
		if !known {
			look("the file "+name, f.Data)
		}
		if f.Mode&0o077 != 0 {
			found = append(found, fmt.Sprintf("the file %s is open to others: mode %04o", name, f.Mode))
		}
	}
	for place, data := range also {
		look(place, data)
	}
	slices.Sort(found)
	return found
}

// shortestSecret is the length below which words are not regarded as secrets.
const shortestSecret = 12

// Secrets are the secrets of a Observation: of the Talos bundle and of the administrator's files.
func (seen Observation) Secrets() map[string]string {
	found := map[string]string{}
	for _, name := range []string{"kubeconfig", "talosconfig", "management.kubeconfig"} {
		for i, secret := range keyLine.FindAllSubmatch(seen.Files[name].Data, -1) {
			found[fmt.Sprintf("key %d of %s", i+1, name)] = string(secret[1])
		}
	}
	for _, c := range seen.Clusters {
		for _, o := range c.Objects {
			bundle, err := base64.StdEncoding.DecodeString(text(o, "data", "bundle"))
			if text(o, "kind") != "Secret" || err != nil {
				continue
			}
			for i, secret := range bundleLine.FindAllSubmatch(bundle, -1) {
				found[fmt.Sprintf("secret %d of %s", i+1, text(o, "metadata", "name"))] = string(secret[1])
			}
		}
	}
	return found
}

// bundleLine is a secret in a Talos bundle.
var bundleLine = regexp.MustCompile(
	`(?m)^\s*(?:secret|bootstraptoken|secretboxencryptionsecret|token|key): ["']?([^\s"']+)`)

// keyLine is a private key in a kubeconfig or talosconfig.
var keyLine = regexp.MustCompile(`(?m)^\s*-?\s*(?:client-key-data|key): ["']?([A-Za-z0-9+/=]{40,})`)

// InTime finds a resumed run that took longer than the rest of an undisturbed one and half a minute: what waits for
// something that does not come, as for a lease to expire, takes longer. Both were measured on the same machine, which
// others use too: noise is how many times as long anything may take there for no reason of the command's.
func InTime(resumed, rest time.Duration, noise float64) []string {
	const grace = 30 * time.Second
	allowed := time.Duration(float64(rest)*noise) + grace
	if resumed <= allowed {
		return nil
	}
	return []string{fmt.Sprintf("the resumed run took %.1fs, the rest of an undisturbed one takes %.1fs",
		resumed.Seconds(), rest.Seconds())}
}
