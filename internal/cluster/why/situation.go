// Package why explains in one sentence why a cluster is not ready: what is missing, what causes it, and what the
// operator can do. It makes no request; the caller gives it a Situation.
package why

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Situation is what was seen of a cluster at one moment. What is nil or empty is not there, unless Silent names who did
// not tell.
type Situation struct {
	At time.Time `json:"at"`
	// Cluster API's objects. Machines of the control plane and servers (HCloudMachines) are found by their references.
	Cluster        *unstructured.Unstructured  `json:"cluster,omitempty"`
	Infrastructure *unstructured.Unstructured  `json:"infrastructure,omitempty"` // HetznerCluster
	ControlPlane   *unstructured.Unstructured  `json:"controlPlane,omitempty"`   // TalosControlPlane
	Configs        []unstructured.Unstructured `json:"configs,omitempty"`        // TalosConfigs
	Machines       []unstructured.Unstructured `json:"machines,omitempty"`
	Servers        []unstructured.Unstructured `json:"servers,omitempty"` // HCloudMachines
	// Outdated are the control plane's Machines that were made from another configuration than the control plane has now,
	// by name.
	Outdated []string `json:"outdated,omitempty"`

	Nodes  []Node  `json:"nodes,omitempty"`
	Pods   []Pod   `json:"pods,omitempty"`   // of the system, those that are not ready
	Events []Event `json:"events,omitempty"` // warnings

	Cloud    []Server         `json:"cloud,omitempty"`    // at Hetzner
	CloudAt  time.Time        `json:"cloudAt,omitzero"`   // when Hetzner was asked
	Failures []Failure        `json:"failures,omitempty"` // actions that Hetzner began and that failed
	Images   *Images          `json:"images,omitempty"`   // asked for where a server could not be made for want of one
	Talos    map[string]Talos `json:"talos,omitempty"`    // by the server's name; those that run
	// why the cluster's API does not answer through its load balancer
	API  string `json:"api,omitempty"`
	Lost string `json:"lost,omitempty"` // why the API's address will never answer again

	Silent map[string]string `json:"silent,omitempty"` // who could not be asked, and why

	// Pauses is the operation that was begun, has not ended, and pauses the cluster until then; empty: none.
	Pauses string `json:"pauses,omitempty"`
}

// Who can be silent.
const (
	Management = "management" // cluster
	Workload   = "workload"   // cluster
	Hetzner    = "hetzner"
)

// Server is a server as Hetzner has it.
type Server struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	// Protected reports that Hetzner refuses to delete it.
	Protected bool `json:"protected,omitempty"`
}

// Failure is an action that Hetzner could not finish.
type Failure struct {
	Command  string    `json:"command"`
	Server   int64     `json:"server"` // its ID
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	Finished time.Time `json:"finished"`
}

// Images is how many images have the name that the servers want, for their architecture, whatever CAPH saw when it
// looked last.
type Images struct {
	Name  string `json:"name"`
	Found int    `json:"found"`
}

// Talos is what a server's Talos answers.
type Talos struct {
	Trouble string `json:"trouble,omitempty"` // why it does not
	Etcd    bool   `json:"etcd,omitempty"`    // runs and is healthy
	State   string `json:"state,omitempty"`   // of its service etcd, as Talos names it
}

// Node is a node, with what is wrong with it.
type Node struct {
	Name     string    `json:"name"`
	Ready    bool      `json:"ready"`
	Troubles []string  `json:"troubles,omitempty"`
	Mismatch *Mismatch `json:"mismatch,omitempty"` // nil: it has the name and the provider ID of its server
}

// Pod is a Pod that is not ready, and why as far as it tells.
type Pod struct {
	Name    string `json:"name"`
	Trouble string `json:"trouble,omitempty"`
	// Crashes reports that a container of it ends again and again.
	Crashes bool `json:"crashes,omitempty"`
	// Log is what its program is called in the target logs; empty: that does not have it.
	Log string `json:"log,omitempty"`
}

// Event is a warning.
type Event struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Last    time.Time `json:"last"`
}

// member is a machine with all that tells of it.
type member struct {
	name    string // the server's
	machine *unstructured.Unstructured
	server  *unstructured.Unstructured // nil: not there yet
	config  *unstructured.Unstructured // nil: not there yet
	state   string                     // Hetzner's status of the server; empty: there is none
	talos   Talos
}

const running = "running"

func (m member) controlPlane() bool {
	_, is := m.machine.GetLabels()[capi.ControlPlaneLabel]
	return is
}

// members are the machines of the control plane.
func (s Situation) members() []member {
	return slices.DeleteFunc(s.machines(), func(m member) bool { return !m.controlPlane() })
}

func (s Situation) machines() []member {
	var all []member
	for i := range s.Machines {
		m := &s.Machines[i]
		one := member{name: m.GetName(), machine: m, talos: Talos{Trouble: "not asked yet"}}
		one.config = find(s.Configs, capi.Text(m, "spec", "bootstrap", "configRef", "name"))
		if one.server = find(s.Servers, capi.Text(m, "spec", "infrastructureRef", "name")); one.server != nil {
			one.name = one.server.GetName()
			if capi.Text(one.server, "spec", "providerID") != "" {
				one.state = s.stateOf(one)
			}
		}
		if t, ok := s.Talos[one.name]; ok {
			one.talos = t
		}
		all = append(all, one)
	}
	return all
}

// configurationFailed is the reason of a TalosConfig from which no machine configuration can be made.
const configurationFailed = "DataSecretGenerationFailed"

// Unmade reports whether a Machine has no server and gets none: it was created from something that the control plane has
// no more, so that its configuration cannot be made, or its server is refused; or CAPH has given it up. The control
// plane's provider keeps the Machine all the same.
func (s Situation) Unmade(machine string) bool {
	return slices.ContainsFunc(s.members(), func(m member) bool { return m.machine.GetName() == machine && s.unmade(m) })
}

func (s Situation) unmade(m member) bool {
	if c, ok := worst(complaints(m.config)); ok && c.reason == configurationFailed {
		return slices.Contains(s.Outdated, m.machine.GetName())
	}
	return (s.replaced(m) || capi.ProvisioningFailed(m.server)) && capi.Text(m.machine, "spec", "providerID") == "" &&
		capi.Text(m.server, "spec", "providerID") == "" && len(complaints(m.server)) > 0
}

// replaced reports whether the server of a Machine was ordered by another template than the control plane has now.
func (s Situation) replaced(m member) bool {
	if m.server == nil || s.ControlPlane == nil {
		return false
	}
	by := m.server.GetAnnotations()[capi.ClonedFromAnnotation]
	now := capi.Text(s.ControlPlane, "spec", "infrastructureTemplate", "name")
	return m.controlPlane() && by != "" && now != "" && by != now
}

// Runs reports whether a control plane's server runs.
func (s Situation) Runs(server string) bool {
	return slices.ContainsFunc(s.members(), func(m member) bool { return m.name == server && m.state == running })
}

// stateOf is Hetzner's status, and CAPH's where Hetzner was not asked: CAPH looks at a server that starts once a
// minute.
func (s Situation) stateOf(m member) string {
	if s.Silent[Hetzner] != "" || s.Cloud == nil {
		return capi.Text(m.server, "status", "instanceState")
	}
	i := slices.IndexFunc(s.Cloud, func(c Server) bool { return c.Name == m.name })
	switch {
	case i >= 0:
		return s.Cloud[i].Status
	case s.CloudAt.Before(madeAt(m.server).Add(cloudLag)):
		return capi.Text(m.server, "status", "instanceState")
	}
	return vanished
}

// cloudLag is how much later than CAPH Hetzner must have been asked to know of a server: conditions tell whole seconds.
const cloudLag = 2 * time.Second

// madeAt is when CAPH got its server.
func madeAt(server *unstructured.Unstructured) time.Time {
	all, _, _ := unstructured.NestedSlice(server.Object, "status", "conditions")
	for _, c := range all {
		if m, _ := c.(map[string]any); m["type"] == "ServerCreateSucceeded" {
			word, _ := m["lastTransitionTime"].(string)
			at, _ := time.Parse(time.RFC3339, word)
			return at
		}
	}
	return time.Time{}
}

// vanished is the state of a server that Cluster API knows and Hetzner does not.
const vanished = "vanished"

func find(all []unstructured.Unstructured, name string) *unstructured.Unstructured {
	for i := range all {
		if all[i].GetName() == name {
			return &all[i]
		}
	}
	return nil
}

func (s Situation) wanted() int { return int(capi.Number(s.ControlPlane, "spec", "replicas")) }

// condition is what a controller says of an object.
type condition struct {
	kind, reason, message, severity string
	since                           time.Time
}

// complaints are an object's conditions that are false. Ready only repeats the others.
func complaints(o *unstructured.Unstructured) []condition {
	if o == nil {
		return nil
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var found []condition
	for _, c := range all {
		m, _ := c.(map[string]any)
		if m["status"] != "False" || m["type"] == "Ready" && len(all) > 1 {
			continue
		}
		word := func(key string) string { w, _ := m[key].(string); return w }
		since, _ := time.Parse(time.RFC3339, word("lastTransitionTime"))
		found = append(found,
			condition{word("type"), word("reason"), strings.TrimSpace(word("message")), word("severity"), since})
	}
	return found
}

// failure is what a controller wrote down when it gave an object up.
func failure(o *unstructured.Unstructured) string {
	var words []string
	for _, field := range []string{"failureReason", "failureMessage"} {
		if word := capi.Text(o, "status", field); word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 && capi.ProvisioningFailed(o) {
		words = append(words, "ProvisioningFailed")
		if c, ok := worst(complaints(o)); ok && c.message != "" {
			words = append(words, briefly(c.message))
		}
	}
	return strings.Join(words, ": ")
}

// lastSeen is when a complaint was last found to be so. A condition keeps the time at which it began; an event tells
// when it was met again.
func (s Situation) lastSeen(name string, c condition) time.Time {
	last := c.since
	for _, e := range s.Events {
		if e.Name == name && e.Reason == c.reason && e.Last.After(last) {
			last = e.Last
		}
	}
	return last
}
