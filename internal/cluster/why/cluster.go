package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// blameCluster collects what keeps the cluster as a whole.
func (s Situation) blameCluster(found *findings) {
	if s.Lost != "" {
		found.add(Finding{What: s.Lost, Terminal: true, Seen: s.At, weight: weightTerminal})
	}
	s.blamePause(found)
	for _, c := range complaints(s.Infrastructure) {
		if strings.HasPrefix(c.kind, "TargetCluster") {
			continue // that the API does not answer is asked of the API
		}
		f := s.translate(s.Infrastructure, c)
		f.Who = []string{"HetznerCluster"}
		found.add(f)
	}
	s.blameSurplus(found)
	if why := failure(s.ControlPlane); why != "" {
		found.add(Finding{
			Who: []string{"TalosControlPlane " + s.ControlPlane.GetName()}, What: "the Talos provider has given it up (" + why +
				") and does not try again",
			Do: "remove the cause and, as long as there is no cluster yet, start again: destroy, then bootstrap", Terminal: true,
			Seen: s.At, weight: weightTerminal,
		}.by("destroy"))
	}
	for _, c := range complaints(s.ControlPlane) {
		// While all Machines are there, its conditions say in other words what the servers are asked for here.
		if c.kind != "MachinesReady" && (c.severity == "Error" || c.kind == "MachinesCreated") {
			found.add(Finding{Who: []string{"TalosControlPlane"}, What: verbatim(c), weight: weightTrouble})
		}
	}
}

// blameSurplus tells of what keeps the provider from starting etcd: Machines that are too many, or are to be replaced.
// It takes none away before etcd runs.
func (s Situation) blameSurplus(found *findings) {
	if s.ControlPlane == nil || capi.Truth(s.ControlPlane, "status", "bootstrapped") ||
		capi.Truth(s.ControlPlane, "status", "initialized") {
		return
	}
	n, want := len(s.members()), s.wanted()
	surge, told, _ := unstructured.NestedFieldNoCopy(s.ControlPlane.Object, "spec", "rolloutStrategy", "rollingUpdate",
		"maxSurge")
	replacing := slices.ContainsFunc(complaints(s.ControlPlane),
		func(c condition) bool { return c.kind == "MachinesSpecUpToDate" })
	one := Finding{Who: []string{"TalosControlPlane"}, weight: weightTrouble}
	switch {
	case n > want:
		one.What = fmt.Sprintf("it has %d Machines for %d replicas, and starts etcd with exactly %d", n, want, want)
	case n == want && replacing && told && fmt.Sprint(surge) == "0":
		one.What = "it has to replace its servers without an additional one (maxSurge 0), and waits for etcd, which it starts only afterwards: set maxSurge to 1"
	default:
		return
	}
	found.add(one)
}

// blamePause reports controllers that are paused: waiting for them is useless.
func (s Situation) blamePause(found *findings) {
	var paused []string
	if capi.Truth(s.Cluster, "spec", "paused") {
		paused = append(paused, "Cluster")
	}
	for _, o := range []*unstructured.Unstructured{s.Cluster, s.Infrastructure, s.ControlPlane} {
		if o == nil {
			continue
		}
		if _, held := o.GetAnnotations()[capi.UpgradeHeldAnnotation]; held {
			found.add(Finding{
				Who: []string{o.GetKind()}, What: "an upgrade holds it until the new server is a Ready node, or " +
					"until it is resumed, so that no further server is replaced",
				Do:     "if no upgrade is at work, run the upgrade that was begun again, which lets it continue",
				weight: weightTrouble,
			})
			continue
		}
		if _, ok := o.GetAnnotations()[capi.PausedAnnotation]; ok {
			paused = append(paused, o.GetKind())
		}
	}
	if len(paused) > 0 && s.Pauses != "" {
		found.add(Finding{Who: slices.Compact(paused), What: "paused by " + s.Pauses + ", which has not ended and lets " +
			"its controllers continue", weight: weightTrouble})
		return
	}
	if len(paused) > 0 {
		found.add(Finding{
			Who: slices.Compact(paused), What: "paused, so its controllers do nothing",
			Do:     "if no run or operator is at work on it, remove spec.paused and the annotation " + capi.PausedAnnotation,
			weight: weightTrouble,
		})
	}
}

// troubles are a node's in one sentence, without what only follows from another.
func (n Node) troubles() string {
	initialized := !strings.Contains(strings.Join(n.Troubles, " "), "/uninitialized")
	var all []string
	for _, t := range n.Troubles {
		switch {
		case strings.Contains(t, "NetworkPluginNotReady"):
			t = "not Ready (its network plugin, Cilium, does not run yet)"
		case !initialized && (strings.Contains(t, "provider ID") || strings.HasPrefix(t, "its address")):
			continue // the controller that removes the taint sets these
		}
		all = append(all, t)
	}
	return strings.Join(all, ", ")
}

// blamePods collects the Pods of the system that are not ready.
func (s Situation) blamePods(found *findings) {
	for _, p := range s.Pods {
		what := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(p.Trouble, "Pod "+p.Name), ":"), " ")
		for _, e := range s.Events {
			if what == "" && e.Kind == "Pod" && e.Name == p.Name {
				what = e.Reason + " (" + briefly(e.Message) + ")"
			}
		}
		if what == "" {
			what = "not ready yet"
		}
		one := Finding{Who: []string{"Pod " + p.Name}, What: what, weight: weightNormal}
		if p.Crashes {
			one.weight = weightTrouble
			one = p.log(one)
		}
		found.add(one)
	}
}

// log adds to a finding how to read why the Pod's container ends.
func (p Pod) log(f Finding) Finding {
	if p.Log == "" {
		f.Do = "its log has the cause: kubectl --namespace kube-system logs " + p.Name + " --previous"
		return f
	}
	f.Do = "its log has the cause"
	return f.by("logs", p.Log, "--no-follow")
}

// verbatim is a condition that has no sentence of its own here: its message, or the words of its reason.
func verbatim(c condition) string {
	if c.message == "" || counted.MatchString(c.message) {
		return cmp.Or(reasons[c.reason], spelled(c.reason), spelled(c.kind)+" is false")
	}
	return briefly(c.message)
}

// Said is what an object's conditions complain about, for people; empty: nothing.
func Said(o *unstructured.Unstructured) string {
	var all []string
	for _, c := range complaints(o) {
		if one := verbatim(c); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, ", ")
}

// counted is a message that only sums up other conditions.
var counted = regexp.MustCompile(`^\d+ of \d+ completed$`)

// reasons are sentences in the place of reasons of Cluster API that come without a message.
var reasons = map[string]string{
	"NodeNotFound": "its node does not exist", "NodeStartupTimeout": "its node did not appear in time",
	"UnhealthyNode": "its node is not Ready", "NodeProvisioning": "its node is not there yet",
	"WaitingForNodeRef": "its node is not there yet", "NodeConditionsFailed": "its node is not healthy",
	"WaitingForInfrastructure": "its server is not there yet", "WaitingForDataSecret": "its machine configuration is " +
		"not generated yet",
	"WaitingForControlPlane": "it waits for the control plane", "Draining": "its node is being drained",
	"Deleting": "it is being deleted", "Deleted": "it is being deleted", "ScalingUp": "a server is being added",
	"ScalingDown": "a server is being deleted", "RollingUpdateInProgress": "its servers are being replaced",
}

var hump = regexp.MustCompile(`([a-z])([A-Z])`)

// spelled is a name of Cluster API in words: "node not found".
func spelled(name string) string { return strings.ToLower(hump.ReplaceAllString(name, "$1 $2")) }

// briefly is a controller's message in one line, without the number that every answer of Hetzner's has of its own: a
// sentence changes when the situation does.
func briefly(message string) string {
	const most = 240
	line := []rune(withoutCorrelation(strings.Join(strings.Fields(message), " ")))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
