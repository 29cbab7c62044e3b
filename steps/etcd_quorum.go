package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// etcdView is what is known of etcd through the machines that were asked.
type etcdView struct {
	members []talos.EtcdMember
	health  map[string]error // node → why its member does not serve; nil: it does
}

// String is "of 3 voting members, a and b are healthy".
func (e etcdView) String() string {
	return fmt.Sprintf("of %d voting members %s healthy", len(e.voters()), sentenceOf(e.healthyBut("")))
}

func sentenceOf(names []string) string {
	switch len(names) {
	case 0:
		return "none is"
	case 1:
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

func (e etcdView) voters() []string {
	var names []string
	for _, m := range e.members {
		if !m.Learner {
			names = append(names, m.Name)
		}
	}
	return names
}

func (e etcdView) healthyBut(name string) []string {
	var healthy []string
	for _, v := range e.voters() {
		if why, asked := e.health[v]; v != name && asked && why == nil {
			healthy = append(healthy, v)
		}
	}
	return healthy
}

// needs says why etcd needs a member; empty if a majority of the voters, counting it as lost, is healthy.
func (e etcdView) needs(name string) string {
	voters, healthy := e.voters(), e.healthyBut(name)
	quorum := len(voters)/2 + 1
	if len(healthy) >= quorum {
		return ""
	}
	var why wait.Reasons
	for _, v := range voters {
		switch err, asked := e.health[v]; {
		case v == name || asked && err == nil:
		case !asked:
			why.Add(v, "no Machine has this name")
		default:
			why.Add(v, err.Error())
		}
	}
	line := fmt.Sprintf("etcd would lose its quorum: of %d voting members %d must be healthy without %s, and %s", len(voters), quorum, name, sentenceOf(healthy))
	return strings.Join(append([]string{line}, why.Lines()...), "; ")
}

// errOnItsWayOut is why the member of a Machine that is being deleted counts for nothing, however healthy it is still.
var errOnItsWayOut = errors.New("its Machine is being deleted")

// askEtcd asks every control plane machine but one how its etcd is, and a healthy one for the members.
func askEtcd(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster, but string) (etcdView, error) {
	config, err := secretValue(ctx, manager, cfg.ClusterName+"-talosconfig", "talosconfig")
	if err != nil {
		return etcdView{}, err
	}
	t, err := tools.Talos(config)
	if err != nil {
		return etcdView{}, err
	}
	machines, err := capi.List(ctx, manager, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return etcdView{}, err
	}
	machines = slices.DeleteFunc(capi.ControlPlaneMachines(machines), func(m unstructured.Unstructured) bool { return m.GetName() == but })
	e := etcdView{health: map[string]error{}}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, m := range machines {
		asking.Go(func() {
			members, err := []talos.EtcdMember(nil), errOnItsWayOut
			if m.GetDeletionTimestamp() == nil {
				members, err = askMember(ctx, t, &m)
			}
			mu.Lock()
			defer mu.Unlock()
			e.health[capi.Text(&m, "spec", "infrastructureRef", "name")] = err
			if err == nil {
				e.members = members
			}
		})
	}
	asking.Wait()
	if e.members == nil {
		var why wait.Reasons
		for name, err := range e.health {
			why.Add(name, err.Error())
		}
		slices.Sort(why.Order)
		return etcdView{}, fmt.Errorf("no other member answers: %s", strings.Join(why.Lines(), "; "))
	}
	return e, nil
}

// askMember asks one machine, at the first of its addresses that answers.
func askMember(ctx context.Context, t platform.TalosClient, machine *unstructured.Unstructured) ([]talos.EtcdMember, error) {
	err := errors.New("it has no address yet")
	for _, address := range append(capi.Addresses(machine, capi.AddressExternal), capi.Addresses(machine, capi.AddressInternal)...) {
		var node talos.Node
		asking, cancel := context.WithTimeout(ctx, askTalosWithin)
		if node, err = t.Ask(asking, address); err == nil && !node.Healthy {
			err = fmt.Errorf("its etcd is %q and does not call itself healthy", node.Etcd)
		}
		var members []talos.EtcdMember
		if err == nil {
			members, err = t.EtcdMembers(asking, address)
		}
		cancel()
		if err == nil {
			return members, nil
		}
	}
	return nil, err
}

// differs says in what etcd's voters are not exactly the wanted ones, all healthy.
func (e etcdView) differs(servers []string) string {
	var missing []string
	for _, s := range servers {
		if !slices.Contains(e.voters(), s) {
			missing = append(missing, s+" does not vote in etcd yet")
		} else if err := e.health[s]; err != nil {
			missing = append(missing, s+": "+err.Error())
		}
	}
	for _, m := range e.members {
		if !slices.Contains(servers, m.Name) {
			missing = append(missing, "etcd still counts "+m.Name)
		}
	}
	return strings.Join(missing, "; ")
}
