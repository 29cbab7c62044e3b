// Package judge judges the result of a run of the command, or of several that were killed. It observes from outside
// only: the simulated cloud through its API and the log of its requests, the objects of both clusters and the audit
// logs of their API servers, and the files of the state folder. It does not rely on the command's own reports, and
// shares no code with it, so that a mistake there cannot hide itself here.
//
// An Observation is the state at one time. Verdicts are functions of Observations that return findings, each a
// sentence; none is good.
package judge

import (
	"time"
)

// Observation is the observed state of a lab.
type Observation struct {
	Cloud    map[string][]Object // resources by their name in the API: servers, load_balancers …
	Clusters map[Side]Cluster    // those that exist
	Requests []Request           // to the cloud, the changing ones, in order
	Writes   []Write             // to either cluster, in order
	Files    map[string]File     // below the state folder, without the lab's; links are left out
	Journal  map[string]string   // step → state, as in the journal's file; nil: there is no journal
}

// Object is a resource of the cloud or an object of a cluster, as JSON.
type Object = map[string]any

// Side is one of the two management clusters of a bootstrap.
type Side string

// The two management clusters.
const (
	Management Side = "management" // the temporary one
	Workload   Side = "workload"   // the workload cluster
)

// Cluster is a cluster with everything in it that is compared.
type Cluster struct {
	Identity Identity
	Objects  []Object
}

// Known says whether the cluster could be read.
func (c Cluster) Known() bool { return c.Identity.System != "" }

// Identity is what makes a cluster this one. Secrets are in it as digests; empty means that the cluster does not have
// it.
type Identity struct {
	System         string // UID of the namespace kube-system
	Authority      string // of the certificate that signs its API servers' certificates
	Bundle         string // of Talos's bundle: all that new machines of the cluster are created from
	ServiceAccount string // of the key that signs service accounts' tokens
	Talos          string // of the certificate that signs those of Talos's API
}

// Request is a line of the cloud's request log.
type Request struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Status int       `json:"status"` // of the reply, also of one that a fault lost; 0: there was none
	Actor  string    `json:"actor"`  // the client's program
	Write  bool      `json:"write"`
}

// Write is a line of an audit log: a call that changed something or was refused.
type Write struct {
	Time        time.Time
	Side        Side
	Verb        string
	Resource    string // clusters.cluster.x-k8s.io
	Subresource string
	Namespace   string
	Name        string
	Agent       string // the client's program
	Code        int
	DryRun      bool
	Paused      *bool // of a Cluster object, after the write; nil of anything else
}

// File is a file of the state folder.
type File struct {
	Mode uint32 // permission bits
	Data []byte
}
