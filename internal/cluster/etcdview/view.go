// Package etcdview reads what the servers of a control plane say of etcd: which of them has data, and the latest, and
// what the members say of each other.
package etcdview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// View is what is known of etcd through the machines that were asked.
type View struct {
	Members []talos.EtcdMember
	Health  map[string]error // node → why its member does not serve; nil: it does
}

// String is "of 3 voting members, a and b are healthy".
func (e View) String() string {
	return fmt.Sprintf("of %d voting members %s healthy", len(e.Voters()), sentenceOf(e.Healthy()))
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

// Voters are the names of the members that are no learners.
func (e View) Voters() []string {
	var names []string
	for _, m := range e.Members {
		if !m.Learner {
			names = append(names, m.Name)
		}
	}
	return names
}

// Healthy are the names of the voters that were asked and serve.
func (e View) Healthy() []string { return e.healthyBut("") }

func (e View) healthyBut(name string) []string {
	var healthy []string
	for _, v := range e.Voters() {
		if why, asked := e.Health[v]; v != name && asked && why == nil {
			healthy = append(healthy, v)
		}
	}
	return healthy
}

// Needs says why etcd needs a member; empty if a majority of the voters, counting it as lost, is healthy.
func (e View) Needs(name string) string {
	voters, healthy := e.Voters(), e.healthyBut(name)
	quorum := len(voters)/2 + 1
	if len(healthy) >= quorum {
		return ""
	}
	var why wait.Reasons
	for _, v := range voters {
		switch err, asked := e.Health[v]; {
		case v == name || asked && err == nil:
		case !asked:
			why.Add(v, "no Machine has this name")
		default:
			why.Add(v, err.Error())
		}
	}
	line := fmt.Sprintf("etcd would lose its quorum: of %d voting members %d must be healthy without %s, and %s",
		len(voters), quorum, name, sentenceOf(healthy))
	return strings.Join(append([]string{line}, why.Lines()...), "; ")
}

// MayRecoverWithout reports whether the other members may come to be a majority without any change: members elect a
// leader, servers boot. A member that is stopped stays stopped, and one whose Machine is being deleted leaves.
func (e View) MayRecoverWithout(name string) bool {
	may := 0
	for member, err := range e.Health {
		if member != name && (e.Members == nil || slices.Contains(e.Voters(), member)) &&
			!errors.Is(err, errOnItsWayOut) && !errors.As(err, new(*StoppedError)) {
			may++
		}
	}
	return may >= len(e.Voters())/2+1
}

// StoppedError is why a member does not serve whose server lives: its etcd is stopped.
type StoppedError struct{ State string } // of Talos's service etcd

// Error implements error.
func (e *StoppedError) Error() string { return "its etcd is stopped (Talos: " + e.State + ")" }

// Repair names the voters whose etcd is stopped, and what to do: the control plane provider (CACPPT) waits for them
// before it changes any server. command is what to type for a target. Empty: there are none.
func (e View) Repair(command func(...string) string) string {
	var all []string
	for _, v := range e.Voters() {
		stopped, is := errors.AsType[*StoppedError](e.Health[v])
		if !is {
			continue
		}
		do := "the other members have their quorum: " + command("replace-machine", v)
		if e.Needs(v) != "" {
			do = "without it etcd has no quorum: start it (talosctl service etcd start, or reboot the server)"
		}
		all = append(all, fmt.Sprintf("%s: %v, and the control plane provider adds, removes and replaces no server while "+
			"it is; %s",
			v, stopped, do))
	}
	return strings.Join(all, "; ")
}

// errOnItsWayOut is why the member of a Machine that is being deleted counts for nothing, however healthy it is still.
var errOnItsWayOut = errors.New("its Machine is being deleted")

// Ask asks every control plane machine but one how its etcd is, and a healthy one for the members. Where none is
// healthy, the View that comes with the error has no members.
func Ask(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster, but string) (View,
	error) {
	t, machines, err := ControlPlane(ctx, tools, manager, cfg.Namespace, cfg.ClusterName)
	if err != nil {
		return View{}, err
	}
	machines = slices.DeleteFunc(machines, func(m unstructured.Unstructured) bool { return m.GetName() == but })
	return AskMembers(ctx, t, machines, "")
}

// AskMembers is Ask for Machines, with a client that the caller has, and also through a load balancer; empty: there is
// none to ask through.
func AskMembers(ctx context.Context, t talos.Client, machines []unstructured.Unstructured, balancer string) (View,
	error) {
	e := View{Health: map[string]error{}}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, m := range machines {
		asking.Go(func() {
			members, err := []talos.EtcdMember(nil), errOnItsWayOut
			if m.GetDeletionTimestamp() == nil {
				members, err = askMember(ctx, t, &m, balancer)
			}
			mu.Lock()
			defer mu.Unlock()
			e.Health[capi.Text(&m, "spec", "infrastructureRef", "name")] = err
			if err == nil {
				e.Members = members
			}
		})
	}
	asking.Wait()
	if e.Members == nil {
		var why wait.Reasons
		for name, err := range e.Health {
			why.Add(name, err.Error())
		}
		slices.Sort(why.Order)
		return e, fmt.Errorf("no other member answers: %s", strings.Join(why.Lines(), "; "))
	}
	return e, nil
}

// askMember asks one machine, at the first of its addresses that answers.
func askMember(ctx context.Context, t talos.Client, machine *unstructured.Unstructured,
	balancer string) ([]talos.EtcdMember, error) {
	err := errors.New("it has no address yet")
	for _, route := range RoutesOf(machine, balancer) {
		members, node, routeErr := AskMember(ctx, t, route)
		switch err = routeErr; {
		case why.EtcdStopped(node.Etcd):
			return nil, &StoppedError{node.Etcd}
		case err == nil:
			return members, nil
		}
	}
	return nil, err
}

// AskMember asks a server, which is to be a healthy member of etcd, for all members.
func AskMember(ctx context.Context, t talos.Client, route talos.Route) (members []talos.EtcdMember, node talos.Node,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, AskWithin)
	defer cancel()
	if node, err = t.Ask(ctx, route); err != nil {
		return nil, talos.Node{}, err
	}
	if !node.Healthy {
		return nil, node, fmt.Errorf("its etcd is %q and does not call itself healthy", node.Etcd)
	}
	members, err = t.EtcdMembers(ctx, route)
	return members, node, err
}

// Differs says in what etcd's voters are not exactly the wanted ones, all healthy.
func (e View) Differs(servers []string) string {
	var missing []string
	for _, s := range servers {
		if !slices.Contains(e.Voters(), s) {
			missing = append(missing, s+" does not vote in etcd yet")
		} else if err := e.Health[s]; err != nil {
			missing = append(missing, s+": "+err.Error())
		}
	}
	for _, m := range e.Members {
		if !slices.Contains(servers, m.Name) {
			missing = append(missing, "etcd still counts "+m.Name)
		}
	}
	return strings.Join(missing, "; ")
}

// AskWithin bounds a question to one node; a node that is up answers in milliseconds.
const AskWithin = 3 * time.Second
