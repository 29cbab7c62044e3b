package runs

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Durations are how long steps took, in the lab or at Hetzner.
type Durations struct {
	Recorded map[string]time.Duration // from the state folder's runs
	BuiltIn  map[string]time.Duration // where there is no record
	longest  map[string]time.Duration // of those in recorded
	Measured bool                     // server is a record
}

// RunsRemembered is how many runs an expectation is made from, the newest.
const RunsRemembered = 10

// ReadDurations reads the record of earlier runs. A step's expectation is the middle
// one of the times that it took when it was done; a record that cannot be
// read is no record.
func ReadDurations(s statedir.Dir, environment string) Durations {
	d := Durations{Recorded: map[string]time.Duration{}, BuiltIn: BuiltInDurations(environment),
		longest: map[string]time.Duration{}}
	maps.Copy(d.BuiltIn, builtInRestore(environment))
	ids, _ := IDs(s)
	took := map[string][]time.Duration{}
	for _, id := range ids[max(0, len(ids)-RunsRemembered):] {
		events, _ := readEvents(s.Path(filepath.Join(statedir.RunsFolder, id, statedir.EventsFile)))
		ofRun := map[string]time.Duration{} // of a step that was done again, the last time
		for _, e := range events {
			if e.Kind == flow.StepDone {
				ofRun[e.Step] = e.Elapsed
			}
		}
		for step, elapsed := range ofRun {
			took[step] = append(took[step], elapsed)
		}
	}
	for step, all := range took {
		slices.Sort(all)
		d.Recorded[step], d.longest[step] = all[len(all)/2], all[len(all)-1]
	}
	d.Measured = d.longest[waitsForServers] >= d.BuiltIn[waitsForServers]/madeServers
	return d
}

// waitsForServers is the step that waits for the first servers. In a later run it only looks: a time of less than a
// part of the built-in figure, one of madeServers, is that of a run which made none.
const (
	waitsForServers = "wait-cp"
	madeServers     = 4
)

// Server is about how long it takes to replace one server: a new one comes up, as the first ones did, and its node
// becomes Ready.
func (d Durations) Server() time.Duration {
	comesUp := d.BuiltIn[waitsForServers]
	if d.Measured {
		comesUp = d.longest[waitsForServers]
	}
	return (comesUp + d.BuiltIn["wait-nodes"]).Round(time.Second)
}

// Of is what a step is expected to take, and whether that is a record.
func (d Durations) Of(step string) (expected time.Duration, recorded bool) {
	if took, ok := d.Recorded[step]; ok {
		return took, true
	}
	if strings.HasPrefix(step, "addon-") { // each chart is another; they are Deployments, mostly
		step = "hcloud-ccm"
	}
	return d.BuiltIn[step], false
}

// BuiltInDurations are used until there is a record. Those of the lab were measured on two cores; those of Hetzner are
// put together from what the parts take there: a server a minute and a half from its order to Talos's answer, the
// images of a node and of the providers a minute on a usual line, the upload of a disk image three. Those
// of wait-workers are of a cluster without workers.
func BuiltInDurations(environment string) map[string]time.Duration {
	if environment == statedir.EnvironmentLab {
		return seconds(map[string]float64{
			"preflight": 0.1, "reserve": 0.1, "image": 6, "kind-create": 6, "capi-init": 11, "secret": 0.1, "endpoint": 1, "apply": 1,
			"wait-cp": 15, "kubeconfig": 2.5, "talosconfig": 6, "cilium": 7, "hcloud-ccm": 3, "talos-ccm": 4, "wait-nodes": 3, "workers": 0.1,
			"wait-workers": 0.1, "wait-machines": 15, "addons": 0.1, "gitea-token": 1, "gitea-repository": 2, "flux": 10, "flux-sync": 5,
			"flux-releases": 0.1, "wait-releases": 10, "providers": 15, "pivot": 8,
			"access": 0.6, "token": 0.1, "firewall": 0.5, "firewall-apply": 1, "clean": 3.5,
		})
	}
	return seconds(map[string]float64{
		"preflight": 1, "reserve": 1, "image": 240, "kind-create": 60, "capi-init": 120, "secret": 1, "endpoint": 10, "apply": 10,
		"wait-cp": 240, "kubeconfig": 60, "talosconfig": 60, "cilium": 90, "hcloud-ccm": 30, "talos-ccm": 30,
		"wait-nodes": 30, "workers": 1, "wait-workers": 1,
		"wait-machines": 15, "addons": 1, "gitea-token": 5, "gitea-repository": 5, "flux": 60, "flux-sync": 20, "flux-releases": 1,
		"wait-releases": 10, "providers": 110, "pivot": 45, "access": 5, "token": 1, "firewall": 2, "firewall-apply": 15, "clean": 10,
	})
}

// builtInRestore is the same for the steps that only restore, recover-quorum and
// readopt have. Those at Hetzner are put together as the others are: servers as in
// wait-cp, a snapshot of 100 MB over a usual line, a reset with its boot in two
// minutes.
func builtInRestore(environment string) map[string]time.Duration {
	if environment == statedir.EnvironmentLab {
		return seconds(map[string]float64{
			"lost": 0.2, "claim": 0.1, "seed": 0.1, "firewall-lift": 0.2, "servers": 12, "etcd-recover": 0.5,
			"etcd-bootstrap": 10, "quiet": 1.5, "sweep": 3, "etcd-members": 15, "release": 3, "firewall-return": 0.2,
			"survey": 16, "snapshot": 0.5, "hold": 0.1, "clear": 3, "survivor": 15, "let-go": 15, "put-back": 2,
			"reconcile": 10,
		})
	}
	return seconds(map[string]float64{
		"lost": 3, "claim": 1, "seed": 1, "firewall-lift": 2, "servers": 150, "etcd-recover": 60, "etcd-bootstrap": 90,
		"quiet": 5, "sweep": 15, "etcd-members": 90, "release": 10, "firewall-return": 2, "survey": 20, "snapshot": 15,
		"hold": 1, "clear": 120, "survivor": 180, "let-go": 90, "put-back": 10, "reconcile": 60,
	})
}

func seconds(table map[string]float64) map[string]time.Duration {
	all := map[string]time.Duration{}
	for step, s := range table {
		all[step] = time.Duration(s * float64(time.Second))
	}
	return all
}

// CriticalPath is the longest way through the steps that take time, and how long
// it takes: no run can be quicker, however many steps run at once.
func CriticalPath(all []flow.Info, takes map[string]time.Duration) (path []string, whole time.Duration) {
	type way struct {
		ends   time.Duration
		before string
	}
	ways := map[string]way{}
	last := ""
	for _, s := range all { // each after what it comes after
		own, wanted := takes[s.Name]
		if !wanted {
			continue
		}
		var w way
		for _, l := range s.Behind {
			if before, ok := ways[l.Step]; ok && before.ends > w.ends {
				w = way{before.ends, l.Step}
			}
		}
		w.ends += own
		ways[s.Name] = w
		if last == "" || w.ends > ways[last].ends {
			last = s.Name
		}
	}
	for step := last; step != ""; step = ways[step].before {
		if takes[step] > 0 {
			path = append(path, step)
		}
	}
	slices.Reverse(path)
	return path, ways[last].ends
}
