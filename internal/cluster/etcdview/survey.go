package etcdview

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// Survey is what is known of a broken etcd.
type Survey struct {
	Servers  []string `json:"servers"`        // of the control plane
	Survivor string   `json:"survivor"`       // the one whose member is the most advanced
	Index    uint64   `json:"index"`          // how far, in etcd's log
	Wipe     []string `json:"wipe,omitempty"` // the others that have data of the old etcd
	Target   string   `json:"target"`         // the one that gets the survivor's data: another one, if there is another
	// Silent are those that have data of etcd and did not say how far it is: they could not be compared.
	Silent []string `json:"silent,omitempty"`
}

// IndexOf is how far a server's own member of etcd is.
func IndexOf(ctx context.Context, t talos.Client, n Node) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, AskWithin)
	defer cancel()
	return t.EtcdIndex(ctx, n.Route)
}

// ChooseSurvivor finds the member that has applied most of etcd's log, which is the one of the highest revision, and
// the server that gets its data.
func ChooseSurvivor(ctx context.Context, t talos.Client, nodes []Node) Survey {
	var out Survey
	for _, n := range nodes {
		out.Servers = append(out.Servers, n.Server)
		if !n.Data {
			continue
		}
		switch index, err := IndexOf(ctx, t, n); {
		case err != nil:
			out.Silent = append(out.Silent, n.Server)
		case out.Survivor == "" || index > out.Index:
			out.Survivor, out.Index = n.Server, index
		}
	}
	out.Target = out.Survivor
	for _, n := range nodes {
		if n.Server == out.Survivor {
			continue
		}
		if n.Data {
			out.Wipe = append(out.Wipe, n.Server)
		}
		if out.Target == out.Survivor {
			out.Target = n.Server
		}
	}
	if out.Survivor != "" && out.Target == out.Survivor {
		out.Wipe = append(out.Wipe, out.Survivor)
	}
	return out
}
