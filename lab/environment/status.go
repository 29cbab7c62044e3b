package environment

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/management"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// Status is what runs in the lab, and which parts are real.
type Status struct {
	Parts         []Part               `json:"parts"`
	Clusters      []Cluster            `json:"clusters"`
	Processes     []Process            `json:"processes"`
	Servers       []Server             `json:"servers"`
	LoadBalancers []cloud.LoadBalancer `json:"loadBalancers"`
	Listeners     []string             `json:"listeners"` // addresses on the host's loopback
	Isolation     string               `json:"isolation"`
	Faults        []InForce            `json:"faults"` // requested ports, by number
	Notes         []string             `json:"notes"`
}

// Cluster is a Kubernetes cluster in the lab.
type Cluster struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // management or workload
	Endpoint string `json:"endpoint"`
	Ready    bool   `json:"ready"`            // whether one of its kube-apiservers is ready
	Reason   string `json:"reason,omitempty"` // why it is not ready
}

// Process is a process of the lab.
type Process struct {
	Name      string    `json:"name"`
	PID       int       `json:"pid"` // the host's process id
	Cluster   string    `json:"cluster,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	Server    string    `json:"server,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	RSSBytes  int64     `json:"rssBytes"`
}

// Server is a server of the simulated cloud and what runs on it.
type Server struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	Status      string     `json:"status"` // the status in the API
	PublicIPv4  netip.Addr `json:"publicIPv4,omitzero"`
	PrivateIPv4 netip.Addr `json:"privateIPv4,omitzero"`
	Talos       string     `json:"talos"` // its phase, and why
	Etcd        string     `json:"etcd,omitempty"`
	APIServer   string     `json:"apiserver,omitempty"`
	Kubernetes  string     `json:"kubernetes,omitempty"` // version of its control plane's programs
	Node        string     `json:"node,omitempty"`       // ready or not, and why
	Notes       []string   `json:"notes,omitempty"`
}

func (lab *Lab) status() Status {
	systems := lab.talos.Status()
	s := Status{
		Parts:         lab.parts(),
		Clusters:      []Cluster{},
		Processes:     []Process{},
		Servers:       lab.servers(systems),
		LoadBalancers: lab.cloud.LoadBalancers(),
		Listeners:     lab.cfg.Network.Listeners(),
		Isolation:     lab.cfg.Network.Isolation(),
		Faults:        lab.faults.list(),
		Notes:         lab.notes(),
	}
	for _, m := range lab.managements.List() {
		s.Clusters = append(s.Clusters, statusOf(m))
	}
	s.Clusters = append(s.Clusters, workloads(systems, s.LoadBalancers)...)
	for _, p := range lab.processes.List() {
		s.Processes = append(s.Processes, Process{
			Name: p.Name, PID: p.PID, Cluster: p.Labels[proc.LabelCluster], Pod: p.Labels[proc.LabelPod],
			Server:    p.Labels[proc.LabelServer],
			StartedAt: p.StartedAt, RSSBytes: p.RSSBytes,
		})
	}
	return s
}

func statusOf(m *management.Cluster) Cluster {
	c := Cluster{Name: m.Name(), Kind: "management", Endpoint: m.Endpoint()}
	ended, err := m.Started()
	switch {
	case !ended:
		c.Reason = "it is starting"
	case err != nil:
		c.Reason = err.Error()
	default:
		c.Ready = true
	}
	return c
}

// servers joins the records of the cloud with what runs on its servers.
func (lab *Lab) servers(systems []talos.Status) []Server {
	servers := []Server{}
	for _, hardware := range lab.cloud.Servers() {
		s := Server{
			ID: hardware.ID, Name: hardware.Name, Status: hardware.Status,
			PublicIPv4: hardware.PublicIPv4, PrivateIPv4: hardware.PrivateIP(), Talos: "off",
		}
		if activity := lab.rescue.Activity(hardware.ID); activity != "" {
			s.Talos = "rescue system: " + activity
		}
		i := slices.IndexFunc(systems, func(t talos.Status) bool { return t.ID == hardware.ID })
		if i >= 0 {
			t := systems[i]
			s.Talos, s.Etcd, s.APIServer, s.Notes = reasoned(t.Phase, t.Reason), t.Etcd, t.APIServer, t.Notes
			s.Kubernetes = t.Kubernetes
			if t.Node != nil {
				s.Node = reasoned(map[bool]string{true: "ready", false: "not ready"}[t.Node.Ready], t.Node.Reason)
			}
		}
		servers = append(servers, s)
	}
	return servers
}

func reasoned(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}

// workloads are the workload clusters of the servers, by name.
func workloads(systems []talos.Status, balancers []cloud.LoadBalancer) []Cluster {
	byName := map[string]*Cluster{}
	for _, t := range systems {
		if t.Cluster == "" || !t.ControlPlane {
			continue
		}
		c := byName[t.Cluster]
		if c == nil {
			c = &Cluster{Name: t.Cluster, Kind: "workload", Reason: "no apiserver is ready"}
			byName[t.Cluster] = c
		}
		if t.Endpoint != "" {
			c.Endpoint, c.Ready, c.Reason = t.Endpoint, true, ""
		}
	}
	for _, lb := range balancers {
		for name, c := range byName {
			if _, owned := lb.Labels["caph-cluster-"+name]; owned && lb.PublicIPv4.IsValid() {
				c.Endpoint = plane.Endpoint(lb.PublicIPv4.String(), "")
			}
		}
	}
	clusters := make([]Cluster, 0, len(byName))
	for _, c := range byName {
		clusters = append(clusters, *c)
	}
	slices.SortFunc(clusters, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return clusters
}
