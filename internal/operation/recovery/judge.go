package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/platform"
)

// judge concludes from what was seen. It makes no request.
func (f *facts) judge() Diagnosis {
	d := Diagnosis{Cluster: f.cluster, Seen: f.seen()}
	if f.source != nil {
		h := f.source.Contents.Header
		d.Backup = &BackupFacts{File: f.file, Taken: h.Taken, Revision: h.Etcd.Revision}
	}
	alive := f.api != "" || len(f.leader) > 0
	switch {
	case f.restoring != nil && f.restoring.Ended.IsZero():
		f.lostServers(&d, fmt.Sprintf("a restore is under way, begun %s: the same command with the same file resumes it",
			f.restoring.Began.Format(time.RFC3339)))
	case len(f.servers) == 0 && !alive:
		f.lostServers(&d, "all control plane servers are gone (or there never were any)")
	case f.recovering != nil:
		f.lostQuorum(&d, fmt.Sprintf("a recovery of etcd is under way, begun %s: the same command resumes it",
			f.recovering.Began.Format(time.RFC3339)))
	case f.readopting != nil && f.readopting.Ended.IsZero():
		f.lostManagement(&d, fmt.Sprintf("a readoption is under way, begun %s: the same command with the same file "+
			"resumes it", f.readopting.Began.Format(time.RFC3339)))
	case alive:
		f.aliveButFor(&d)
	case f.deaf != nil && f.locked():
		d.Disaster = Unclear
		d.Sentence = "servers exist, and whether the cluster works is not known: neither the API nor etcd was asked, " +
			"because " +
			f.noKubeconfig() + ", and etcd cannot be asked without a talosconfig: " + f.deaf.Error()
		d.First = f.fetch()
	case f.deaf != nil:
		d.Disaster, d.Sentence = Unclear, "servers exist, the API does not answer, and etcd cannot be asked: "+f.deaf.Error()
		d.First = []string{"put the cluster's talosconfig into the state folder, or name a backup, which has it"}
	case !slices.ContainsFunc(f.nodes, func(n etcdview.Node) bool { return !n.Silent() }):
		d.Disaster, d.Sentence = Unclear, "servers exist, and neither the API nor Talos answers on any of them"
		if f.locked() {
			d.Sentence = "servers exist, Talos answers on none of them, and the API was not asked: " + f.noKubeconfig()
		}
		d.First = []string{"see that they are powered on, and that this machine may reach port 50000 (docs/firewall.md); " +
			"if all are beyond repair, delete them, and restore a backup"}
	case !slices.ContainsFunc(f.nodes, func(n etcdview.Node) bool { return n.Data || n.Silent() }):
		f.lostServers(&d, "all servers answer, and none holds data of etcd: all were wiped, or are booting (ask again in a "+
			"minute), or the bootstrap has not come so far")
		d.First = append(d.First, "only if they were wiped: delete the servers "+f.names(f.nodes)+" at Hetzner, as restore "+
			"makes new ones")
	default:
		f.lostQuorum(&d, "servers live, and etcd has no leader on any of them")
	}
	return d
}

// locked reports that the API was not asked, because this state folder has nothing to open it with. That says nothing
// of the cluster.
func (f *facts) locked() bool { return f.api == "" && errors.Is(f.apiErr, fs.ErrNotExist) }

func (f *facts) noKubeconfig() string {
	if f.source != nil {
		return "neither this state folder nor the backup has the cluster's kubeconfig"
	}
	return "this state folder (" + f.tools.Files.String() + ") does not have the cluster's kubeconfig"
}

// fetch says how the kubeconfig comes into this state folder.
func (f *facts) fetch() []string {
	ways := []string{"use the state folder that the cluster was created from (--state-dir), or, where STATE names a " +
		"store, " +
		f.tools.Command("state", "pull"),
		"or put the cluster's kubeconfig and talosconfig into " + f.tools.Files.String() + ", as the files " +
			platform.Kubeconfig +
			" and " + platform.Talosconfig + "; with the talosconfig alone, talosctl kubeconfig " +
			f.tools.Files.Path(platform.Kubeconfig) + " fetches the kubeconfig"}
	if f.source == nil {
		ways = append(ways, "or name a backup, which has both: "+f.tools.Command("restore", "--diagnose", "FILE"))
	}
	return ways
}

// seen are what was seen, as sentences.
func (f *facts) seen() []string {
	var lines []string
	if len(f.servers) == 0 {
		lines = append(lines, "Hetzner has no control plane server of cluster "+f.cluster)
	}
	for i, s := range f.servers {
		line := fmt.Sprintf("server %s is %s at Hetzner", s.Name, s.Status)
		if i < len(f.nodes) {
			line += ", " + f.seenOf(f.nodes[i])
		}
		lines = append(lines, line)
	}
	if f.balancer != nil {
		lines = append(lines, fmt.Sprintf("load balancer %s (%s) is there", f.balancer.Name, f.balancer.IPv4))
	}
	if f.endpoint != nil && f.endpoint.LoadBalancer == 0 {
		lines = append(lines, fmt.Sprintf("no load balancer has the address %s, which Primary IP %d keeps for the cluster",
			f.endpoint.IPv4, f.endpoint.PrimaryIP))
	}
	switch {
	case f.locked():
		lines = append(lines, "the API was not asked: "+f.noKubeconfig())
	case f.api == "":
		lines = append(lines, "the API does not answer: "+f.apiErr.Error())
	case f.self:
		lines = append(lines, "the API answers at "+f.api+", and the cluster holds its own Cluster object")
	default:
		lines = append(lines, "the API answers at "+f.api)
	}
	switch f.beside {
	case besideHolds:
		lines = append(lines, "management cluster "+f.besideOf+" holds the Cluster object")
	case besideEmpty:
		lines = append(lines, "management cluster "+f.besideOf+" answers and does not hold the Cluster object")
	case besideNone:
		lines = append(lines, "there is no management cluster "+f.besideOf)
	}
	if f.whose != nil {
		lines = append(lines, f.whose.Error())
	}
	if s := f.source; s != nil && f.uid != "" && f.uid != s.Contents.Header.UID {
		lines = append(lines, fmt.Sprintf("the backup is of another cluster of this name: its kube-system is %s, that of "+
			"the living one %s", s.Contents.Header.UID, f.uid))
	}
	return lines
}

func (f *facts) seenOf(n etcdview.Node) string {
	switch {
	case n.Silent():
		return "its Talos does not answer: " + n.Err.Error()
	case n.Err != nil:
		return "Talos answers; " + n.Err.Error()
	case !n.Data:
		return "Talos answers and holds no data of etcd"
	case slices.Contains(f.leader, n.Server):
		return "its etcd has a leader"
	case n.Server == f.survey.Survivor:
		return fmt.Sprintf("its etcd has no leader, and has come farthest (index %d)", f.survey.Index)
	}
	return "its etcd has no leader"
}

func (f *facts) names(nodes []etcdview.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Server)
	}
	return strings.Join(names, ", ")
}

// lostServers is for restore.
func (f *facts) lostServers(d *Diagnosis, sentence string) {
	d.Disaster, d.Sentence = ServersLost, sentence
	d.Target = []string{"restore", f.orFile()}
	d.Does = []string{
		"makes new servers and restores the backup's etcd on one of them; the others join",
		"the cluster comes back with its data, its keys and its UID; self-managed again, if it was",
	}
	// What an unfinished restore has made in its management cluster is its own.
	remade := f.beside == besideHolds && (f.restoring == nil || !f.restoring.Ended.IsZero())
	switch {
	case f.balancer != nil && remade:
		d.Does = append(d.Does, "the load balancer is taken over, where it is left: see what comes first")
	case f.balancer != nil:
		d.Does = append(d.Does, "the load balancer is taken over: the address "+f.balancer.IPv4+" stays")
	case f.endpoint != nil:
		d.Does = append(d.Does, fmt.Sprintf("the address %s stays: Primary IP %d keeps it", f.endpoint.IPv4,
			f.endpoint.PrimaryIP))
	default:
		d.Lost = append(d.Lost, "the address: the load balancer is gone, too, and with it kubeconfigs and tokens "+
			"that name it")
	}
	if f.source == nil {
		d.Lost = append(d.Lost, "everything that was written after the backup was taken: name the FILE, to see when")
	} else {
		taken := f.source.Contents.Header.Taken
		d.Lost = append(d.Lost, fmt.Sprintf("everything that was written after %s, %s ago", taken.Format(time.RFC3339),
			f.now.Sub(taken).Round(time.Minute)))
	}
	d.Lost = append(d.Lost, "what lay on the servers' own disks; volumes at Hetzner stay")
	if remade {
		d.First = append(d.First, "management cluster "+f.besideOf+" holds the objects of the lost servers and makes them "+
			"anew, without data. Before the restore "+f.without())
	}
	d.Steps = RestoreSteps
	if f.source == nil || f.source.Contents.Header.SelfManaged {
		d.Steps = slices.Concat(RestoreSteps, PivotSteps)
	}
}

// without says how to remove a management cluster that creates lost servers again. destroy takes the load balancer,
// too, unless it may not.
func (f *facts) without() string {
	by := "delete it (kind delete cluster --name " + f.besideOf + "), and then at Hetzner the servers that it has made"
	if f.balancer == nil {
		return f.tools.Command("destroy") + ", or " + by
	}
	if f.endpoint != nil {
		return f.tools.Command("destroy", "--keep-address") + ", which leaves the address " + f.endpoint.IPv4.String() +
			", or " + by
	}
	return by + ": that leaves load balancer " + f.balancer.Name + ", and with it the address " + f.balancer.IPv4 + ". " +
		f.tools.Command("destroy") + " deletes both, unless you protect the load " +
		"balancer against deletion at Hetzner first: it then stops there, when the servers are gone"
}

func (f *facts) orFile() string {
	if f.file == "" {
		return "FILE"
	}
	return f.file
}

// lostQuorum is for recover-quorum.
func (f *facts) lostQuorum(d *Diagnosis, sentence string) {
	d.Disaster, d.Sentence = QuorumLost, sentence
	d.Target = []string{"recover-quorum"}
	d.Does = []string{
		"takes a snapshot of the member that knows most, resets the others, restores it on one of them, and has all join " +
			"that; no backup is needed",
		"servers, nodes, address, keys and UID stay",
	}
	d.Lost = []string{
		"writes that the other members accepted and that one did not receive: at most what was written while the " +
			"quorum was lost",
		"what lies on the EPHEMERAL partition of the servers: images, logs, emptyDir, hostPath; volumes at Hetzner stay",
	}
	d.Steps = QuorumSteps
	for _, n := range f.nodes {
		if n.Silent() {
			d.First = append(d.First, n.Server+" has to answer, as it may be a member: power it on; beyond repair, delete it "+
				"at Hetzner")
		}
	}
	if f.survey.Survivor == "" && f.recovering == nil {
		d.First = append(d.First, "no etcd serves, so none gives a snapshot: talosctl service etcd says why. If none ever "+
			"will, delete the servers and restore a backup")
	}
}

// aliveButFor is a cluster with an etcd that works.
func (f *facts) aliveButFor(d *Diagnosis) {
	for _, n := range f.nodes {
		if n.Err != nil || !n.Data {
			d.First = append(d.First, fmt.Sprintf("%s is no member of etcd that answers: if it stays so, %s", n.Server,
				f.tools.Command("replace-machine", n.Server)))
		}
	}
	switch {
	case f.self || f.beside == besideHolds:
		d.Disaster, d.Sentence = NoDisaster, "no disaster: etcd has its quorum, and Cluster API manages the cluster"
	case f.api == "" && f.endpoint != nil && f.endpoint.LoadBalancer == 0:
		d.Disaster, d.Sentence = EndpointLost, "the cluster works, and its load balancer was deleted"
		d.Target = []string{"endpoint"}
		d.Does = []string{fmt.Sprintf("creates a load balancer at the same address, %s, with the same servers; "+
			"kubeconfigs and certificates stay as they are", f.endpoint.IPv4)}
		d.Steps = []string{"endpoint"}
	case f.locked():
		d.Disaster, d.Sentence = Unclear, "etcd has its quorum; whether the API answers, and who manages the cluster, is "+
			"not known: "+f.noKubeconfig()
		d.First = append(d.First, f.fetch()...)
	case f.api == "":
		d.Disaster, d.Sentence = Unclear, "etcd has its quorum, and the API does not answer: nothing is lost that a "+
			"recovery brings back"
		d.First = append(d.First, "see the load balancer's targets, and talosctl logs on a server; the kubeconfig may be "+
			"out of date ("+f.tools.Command("access")+" fetches another)")
	case f.whose != nil:
		d.Disaster, d.Sentence = Unclear, "etcd has its quorum, and who manages the cluster could not be found out"
		d.First = append(d.First, "start the management cluster, or make sure that it is gone; then ask again")
	default:
		f.lostManagement(d, "the cluster works, and no cluster manages it: neither it nor a management cluster holds its "+
			"Cluster object")
		if f.source == nil {
			d.First = append(d.First, "where there is no backup, make one from the servers: "+
				f.tools.Command("backup", "--from-servers"))
		}
	}
}

// lostManagement is for readopt.
func (f *facts) lostManagement(d *Diagnosis, sentence string) {
	d.Disaster, d.Sentence = ManagementLost, sentence
	d.Target = []string{"readopt", f.orFile()}
	d.Does = []string{
		"compares the backup with the servers, etcd's members and the nodes, and refuses where Cluster API would change " +
			"the cluster, unless that is accepted",
		"puts the objects of the backup back, into a management cluster or the cluster itself as it was; no server " +
			"is touched",
	}
	d.Lost = []string{"nothing of what the cluster holds; what was changed of its Cluster API objects since the backup " +
		"was taken"}
	if f.source != nil {
		d.Lost[0] += " (" + f.source.Contents.Header.Taken.Format(time.RFC3339) + ")"
	}
	d.Steps = ReadoptSteps
}
