package world

import (
	"time"

	"github.com/slipway-k8s/slipway/lab/proc"
)

// Status is what runs in the lab, and how much of it is real.
type Status struct {
	Parts     []Part    `json:"parts"`
	Clusters  []Cluster `json:"clusters"`
	Processes []Process `json:"processes"`
	Listeners []string  `json:"listeners"` // addresses on the host's loopback
	Isolation string    `json:"isolation"`
	Notes     []string  `json:"notes"`
}

// Part is a part of the world and how true it is to what it stands for.
type Part struct {
	Name     string `json:"name"`
	Fidelity string `json:"fidelity"` // real, stand-in or simulated
	Detail   string `json:"detail"`
}

// Cluster is a Kubernetes cluster in the lab.
type Cluster struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // management or workload
	Endpoint string `json:"endpoint"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"` // why it is not
}

// Process is a process of the lab.
type Process struct {
	Name      string    `json:"name"`
	PID       int       `json:"pid"` // the host's
	Cluster   string    `json:"cluster,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	Server    string    `json:"server,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	RSSBytes  int64     `json:"rssBytes"`
}

func (w *World) status() Status {
	s := Status{
		Parts:     []Part{},
		Clusters:  []Cluster{},
		Processes: []Process{},
		Listeners: w.cfg.Network.Listeners(),
		Isolation: w.cfg.Network.Isolation(),
		Notes:     []string{},
	}
	for _, m := range w.managements.list() {
		s.Clusters = append(s.Clusters, m.status())
	}
	for _, p := range w.processes.List() {
		s.Processes = append(s.Processes, Process{
			Name: p.Name, PID: p.PID, Cluster: p.Labels[proc.LabelCluster], Pod: p.Labels[proc.LabelPod], Server: p.Labels[proc.LabelServer],
			StartedAt: p.StartedAt, RSSBytes: p.RSSBytes,
		})
	}
	return s
}

func (m *management) status() Cluster {
	c := Cluster{Name: m.name(), Kind: "management", Endpoint: "https://" + m.address() + ":6443"}
	select {
	case <-m.started:
		if c.Ready = m.err == nil; !c.Ready {
			c.Reason = m.err.Error()
		}
	default:
		c.Reason = "it is starting"
	}
	return c
}
