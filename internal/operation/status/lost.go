package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// Lost is a cluster whose API has answered once and does not any more.
type Lost struct {
	Sentence string `json:"sentence"`
	Command  string `json:"command"` // tells which disaster it is, and what to type
}

// lost says what is known of a cluster whose API does not answer any more; nil: it answers, or never has.
func (l *Reader) lost(s why.Situation, self seenSide, cloud seenCloud, servers seenTalos) *Lost {
	if s.API == "" || self.none() || !l.recorded.APIAnswered {
		return nil
	}
	parts := []string{fmt.Sprintf("the API of cluster %s does not answer (%s)", l.cfg.ClusterName, why.ShortError(s.API))}
	parts = append(parts, lostServers(s, cloud)...)
	if etcd := lostMembers(s, cloud, servers); etcd != "" {
		parts = append(parts, etcd)
	}
	if kept := cloud.endpoint; kept != nil && kept.LoadBalancer == 0 {
		parts = append(parts, fmt.Sprintf("its load balancer was deleted, Primary IP %d keeps the address %s, and %s creates "+
			"another load balancer there", kept.PrimaryIP, kept.IPv4, l.tools.Command("endpoint")))
	}
	return &Lost{Sentence: strings.Join(parts, "; "), Command: l.tools.Command("restore", "--diagnose")}
}

// lostServers says which servers of the control plane do not run, as Hetzner has them.
func lostServers(s why.Situation, cloud seenCloud) []string {
	if cloud.Err != nil {
		return []string{"Hetzner could not be asked for its servers (" + why.ShortError(cloud.Err.Error()) + ")"}
	}
	all := controlPlaneOf(cloud.Servers)
	var down []string
	for _, one := range all {
		if one.Status != "running" {
			down = append(down, fmt.Sprintf("%s is %s", one.Name, one.Status))
		}
	}
	for i := range s.Servers {
		name := s.Servers[i].GetName()
		if capi.Text(&s.Servers[i], "spec", "providerID") != "" &&
			!slices.ContainsFunc(cloud.Servers, func(c hetzner.Server) bool { return c.Name == name }) {
			down = append(down, name+" is gone from the Hetzner project")
		}
	}
	switch {
	case len(all) == 0:
		return []string{"Hetzner has no control plane server of it"}
	case len(down) == 0:
		return []string{fmt.Sprintf("all %d control plane servers run", len(all))}
	}
	return []string{fmt.Sprintf("%d of %d control plane servers do not run: %s", len(down), max(len(all), len(down)),
		strings.Join(down, ", "))}
}

func controlPlaneOf(servers []hetzner.Server) []hetzner.Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s hetzner.Server) bool { return !s.ControlPlane })
}

// lostMembers says on how many servers etcd runs, and how many it needs; empty: it is not known.
func lostMembers(s why.Situation, cloud seenCloud, servers seenTalos) string {
	all := max(len(controlPlaneOf(cloud.Servers)), len(capi.ControlPlaneMachines(s.Machines)))
	if all == 0 || len(servers.answers) == 0 {
		return ""
	}
	var runs, silent int
	for _, t := range servers.answers {
		switch {
		case t.Trouble != "":
			silent++
		case t.State == etcdRuns:
			runs++
		}
	}
	majority := all/2 + 1
	text := fmt.Sprintf("etcd runs on %d of %d servers, and a majority is %d", runs, all, majority)
	if runs < majority && runs+silent < majority {
		text = fmt.Sprintf("etcd has lost its quorum: it runs on %d of %d servers, and a majority is %d", runs, all, majority)
	}
	if silent > 0 {
		text += fmt.Sprintf(" (the Talos of %d does not answer)", silent)
	}
	return text
}
