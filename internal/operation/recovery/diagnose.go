package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Disaster is what has befallen a cluster.
type Disaster string

// The disasters, each of which has a target of its own, and what is none of them.
const (
	ServersLost    Disaster = "servers-lost"
	QuorumLost     Disaster = "quorum-lost"
	ManagementLost Disaster = "management-lost"
	// EndpointLost is a load balancer that was deleted and whose address a Primary IP keeps.
	EndpointLost Disaster = "load-balancer-lost"
	NoDisaster   Disaster = "none"
	Unclear      Disaster = "unclear" // something could not be asked that decides
)

// diagnosePatience is how long etcd may be without a leader, as in an election, before that counts.
const diagnosePatience = 5 * time.Second

// Diagnosis is which disaster it is, and what follows from that.
type Diagnosis struct {
	Cluster  string       `json:"cluster"`
	Disaster Disaster     `json:"disaster"`
	Sentence string       `json:"sentence"`
	Seen     []string     `json:"seen"`             // what it was concluded from
	First    []string     `json:"first,omitempty"`  // what a person has to do before
	Target   []string     `json:"target,omitempty"` // what to type behind the command's name; none: nothing
	Does     []string     `json:"does,omitempty"`   // what that does
	Lost     []string     `json:"lost,omitempty"`   // and what is lost
	Backup   *BackupFacts `json:"backup,omitempty"` // of the file that was given
	// Steps are those of the target that take time, in their order, to tell how long it takes.
	Steps []string `json:"-"`
}

// BackupFacts are what a diagnosis tells of a backup.
type BackupFacts struct {
	File     string    `json:"file"`
	Taken    time.Time `json:"taken"`
	Revision int64     `json:"revision"` // etcd's
}

// facts are what a diagnosis is made from, all of it by reads.
type facts struct {
	cluster    string
	tools      platform.Tools // they know how a command is typed
	now        time.Time
	servers    []hetzner.Server // of the control plane
	balancer   *hetzner.Survivor
	endpoint   *hetzner.Endpoint // nil: no Primary IP keeps the cluster's address
	source     *backup.Cluster   // nil: no file was given
	file       string
	restoring  *records.Restore
	recovering *records.Consent
	readopting *records.Readopt

	nodes  []etcdview.Node // one a server
	deaf   error           // why Talos cannot be asked at all; nil: it was
	leader []string        // servers whose etcd has a leader
	survey etcdview.Survey

	api      string // its address; empty: it does not answer
	apiErr   error  // why not
	uid      string
	self     bool       // the cluster has its own Cluster object
	beside   besideRole // the management cluster beside it
	besideOf string
	whose    error // why it could not be asked whether the cluster, or the one beside it, manages it
}

// besideRole is the role that a management cluster beside the cluster has for it.
type besideRole string

const (
	besideNone   besideRole = "none"   // there is no such cluster
	besideEmpty  besideRole = "empty"  // it does not have the Cluster object
	besideHolds  besideRole = "holds"  // it does
	besideSilent besideRole = "silent" // it exists, or may exist, and does not answer
)

// Diagnose finds out which disaster has befallen the cluster. It changes nothing. source is the backup to restore from,
// which file names; nil: none was given.
func Diagnose(ctx context.Context, cfg config.Config, tools platform.Tools, source *backup.Cluster,
	file string) (Diagnosis, error) {
	tools = tools.WithDefaults()
	f := &facts{cluster: cfg.ClusterName, tools: tools, now: time.Now(), source: source, file: file}
	var err error
	if f.restoring, err = records.ReadRestore(tools.Files); err != nil {
		return Diagnosis{}, err
	}
	if f.recovering, err = records.ReadQuorum(tools.Files); err != nil {
		return Diagnosis{}, err
	}
	if f.readopting, err = records.ReadReadopt(tools.Files); err != nil {
		return Diagnosis{}, err
	}
	if f.servers, err = etcdview.ControlPlaneServers(ctx, cfg, tools); err != nil {
		return Diagnosis{}, err
	}
	was := ""
	if source != nil {
		was, _ = source.Endpoint()
	}
	if f.balancer, err = hetzner.SurvivingBalancer(ctx, tools.Hetzner, f.cluster, was); err != nil {
		return Diagnosis{}, err
	}
	f.endpoint, err = hetzner.FindEndpoint(ctx, tools.Hetzner, f.cluster)
	if err != nil && !errors.As(err, new(*hetzner.ForeignError)) {
		return Diagnosis{}, err
	}
	for began := time.Now(); ; {
		askEtcdOf(ctx, tools, f)
		askAPIOf(ctx, cfg, tools, f)
		if len(f.servers) == 0 || f.api != "" || len(f.leader) > 0 || time.Since(began) > diagnosePatience {
			break
		}
		select {
		case <-ctx.Done():
			return Diagnosis{}, context.Cause(ctx)
		case <-time.After(wait.ControlPlaneEvery):
		}
	}
	askBeside(ctx, cfg, tools, f)
	return f.judge(), nil
}

// askEtcdOf asks every server's Talos for its etcd.
func askEtcdOf(ctx context.Context, tools platform.Tools, f *facts) {
	f.nodes, f.deaf, f.leader, f.survey = nil, nil, nil, etcdview.Survey{}
	config, err := fileOrSecret(tools, platform.Talosconfig, f, "-talosconfig", "talosconfig")
	if err != nil {
		f.deaf = err
		return
	}
	t, nodes, err := etcdview.AskServers(ctx, tools, config, f.servers)
	if f.nodes, f.deaf = nodes, err; err != nil {
		return
	}
	for _, n := range etcdview.WithData(nodes) {
		if _, err := etcdview.MembersOf(ctx, t, n); err == nil {
			f.leader = append(f.leader, n.Server)
		}
	}
	if len(f.leader) == 0 {
		f.survey = etcdview.ChooseSurvivor(ctx, t, nodes)
	}
}

// askAPIOf asks the cluster's API who it is, and whether it manages itself.
func askAPIOf(ctx context.Context, cfg config.Config, tools platform.Tools, f *facts) {
	f.api, f.uid, f.self, f.apiErr, f.whose = "", "", false, nil, nil
	config, err := fileOrSecret(tools, platform.Kubeconfig, f, "-kubeconfig", "value")
	var workload *kube.Cluster
	if err == nil {
		workload, err = tools.Connect(config)
	}
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		defer cancel()
		f.uid, err = workload.UID(asking)
	}
	if f.apiErr = err; err != nil {
		return
	}
	f.api = workload.Host()
	object, err := connect.FindCluster(ctx, cfg, workload)
	if err != nil {
		f.whose = fmt.Errorf("the cluster could not be asked whether it manages itself: %w", err)
	}
	f.self = object != nil
}

// askBeside asks the management cluster beside the cluster.
func askBeside(ctx context.Context, cfg config.Config, tools platform.Tools, f *facts) {
	f.besideOf = cfg.ManagementName()
	mgmt, err := connect.Cluster(tools, platform.ManagementKubeconfig)
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, connect.AliveWithin)
		defer cancel()
		_, err = mgmt.UID(asking)
	}
	if err == nil {
		object, err := connect.FindCluster(ctx, cfg, mgmt)
		if f.beside = besideEmpty; object != nil {
			f.beside = besideHolds
		} else if err != nil {
			f.whose = errors.Join(f.whose, fmt.Errorf("management cluster %s could not be asked whether it manages the "+
				"cluster: %w", f.besideOf, err))
		}
		return
	}
	exists, existsErr := tools.Management.Exists(ctx, f.besideOf)
	switch {
	case existsErr == nil && !exists:
		f.beside = besideNone
	case existsErr != nil:
		f.beside = besideSilent
		f.whose = errors.Join(f.whose, fmt.Errorf("%s cannot tell whether management cluster %s exists: %w",
			tools.Management.Name(), f.besideOf, existsErr))
	default:
		f.beside = besideSilent
		f.whose = errors.Join(f.whose, fmt.Errorf("management cluster %s exists and does not answer: %w", f.besideOf, err))
	}
}

// fileOrSecret reads a file of the state folder, or what the backup has of it.
func fileOrSecret(tools platform.Tools, name string, f *facts, suffix, key string) ([]byte, error) {
	data, err := tools.Files.Read(name)
	if !errors.Is(err, fs.ErrNotExist) || f.source == nil {
		return data, err
	}
	if s := f.source.Secret(f.cluster + suffix); s != nil {
		return backup.SecretData(s, key)
	}
	return nil, fmt.Errorf("neither the state folder nor the backup has a %s: %w", name, fs.ErrNotExist)
}
