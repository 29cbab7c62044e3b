package talos

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Status is the status of a server.
type Status struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	Hostname string `json:"hostname,omitempty"` // empty before the configuration is read
	Cluster  string `json:"cluster,omitempty"`
	// ControlPlane is false on a worker, and before the configuration is read.
	ControlPlane bool         `json:"controlPlane"`
	Version      string       `json:"version"` // of Talos
	Addresses    []netip.Addr `json:"addresses"`
	// Phase is off, booting, maintenance, running or "not Talos"; Reason explains it if necessary.
	Phase  string `json:"phase"`
	Reason string `json:"reason,omitempty"`
	// EtcdData is true where the disk holds an etcd member's data, so that a kube-apiserver is to come up with the server.
	EtcdData bool `json:"etcdData"`
	// Each of these is "state: message", empty if the server does not run it.
	APID      string `json:"apid,omitempty"`
	Etcd      string `json:"etcd,omitempty"`
	APIServer string `json:"apiserver,omitempty"`
	Kubelet   string `json:"kubelet,omitempty"`
	// Kubernetes is the version of the control plane's programs, and the configured one where that is another.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Endpoint is the kube-apiserver's own URL; empty while it is not ready.
	Endpoint string `json:"endpoint,omitempty"`
	// Node is the status of the kubelet; nil while it does not run.
	Node *kubelet.Status `json:"node,omitempty"`
	// Notes are differences from the machine configuration.
	Notes []string `json:"notes"`
}

// Status returns the status of every server, sorted by name.
func (t *Talos) Status() []Status {
	t.mu.Lock()
	servers := slices.Collect(maps.Values(t.servers))
	t.mu.Unlock()
	all := make([]Status, 0, len(servers))
	for _, s := range servers {
		all = append(all, s.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// AdminKubeconfig returns an administrator's kubeconfig for the kube-apiserver of a
// server; ok is false while it is not ready.
func (t *Talos) AdminKubeconfig(serverID int64) (kubeconfig []byte, ok bool, err error) {
	p := t.Plane(serverID)
	if p == nil {
		return nil, false, nil
	}
	kubeconfig, err = p.AdminKubeconfig()
	return kubeconfig, err == nil, err
}

// running returns the present system once it has read its configuration, else nil.
func (s *server) running() *system {
	s.mu.Lock()
	y := s.system
	s.mu.Unlock()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.phase != PhaseRunning {
		return nil
	}
	return y
}

func (s *server) status() Status {
	s.mu.Lock()
	y, hardware := s.system, s.hardware
	s.mu.Unlock()
	addresses, _ := s.addresses.get()
	st := Status{ID: hardware.ID, Name: hardware.Name, Version: y.version, Addresses: addresses, EtcdData: s.hasEtcdData()}

	y.mu.Lock()
	st.Phase, st.Reason, st.APIServer, st.Kubernetes = y.phase, y.reason, y.apiServer, y.kubernetes
	st.Notes = make([]string, 0, len(y.notes))
	for _, topic := range slices.Sorted(maps.Keys(y.notes)) {
		st.Notes = append(st.Notes, topic+": "+y.notes[topic])
	}
	y.mu.Unlock()
	if st.Phase != PhaseRunning {
		return st
	}
	st.Hostname, st.Cluster, st.ControlPlane = y.hostname, y.config.Cluster().Name(), y.etcd != nil
	st.APID, st.Kubelet = y.services.describe(serviceAPID), y.services.describe(serviceKubelet)
	if y.etcd != nil {
		st.Etcd = y.services.describe(serviceEtcd)
	}
	if p, _ := y.plane.get(); p != nil {
		st.Endpoint = p.Endpoint()
	}
	if k := y.kubelet.Load(); k != nil {
		node := k.Status()
		st.Node = &node
	}
	return st
}

// describe returns a service's state and message in one line.
func (s *services) describe(id string) string {
	state, message := s.get(id)
	if message == "" {
		return state
	}
	return state + ": " + message
}
