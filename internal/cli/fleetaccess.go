package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"filippo.io/age"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// access is what the Jobs of a cluster can reach.
func (f *openedFleet) access(cluster, clusterNamespace string) fleet.Access {
	return fleet.Access{Namespace: f.Namespace, Cluster: cluster, ClusterNamespace: clusterNamespace}
}

// accessOf is what the Jobs of clusters can reach.
func (f *openedFleet) accessOf(all []fleetCluster) (access []fleet.Access) {
	for _, c := range all {
		access = append(access, f.access(c.Name, c.cfg.Namespace))
	}
	return access
}

// tellShared names clusters that share a namespace: RBAC does not keep them from each other.
func (f *openedFleet) tellShared(all []fleetCluster) {
	first := map[string]string{}
	for _, c := range all {
		if other := first[c.cfg.Namespace]; other != "" {
			tell(f.console, "the clusters %s and %s have their Cluster API objects in one namespace, %s: the Job of each can reach the "+
				"other's, with its kubeconfig; to keep them apart, leave namespace away", other, c.Name, c.cfg.Namespace)
			continue
		}
		first[c.cfg.Namespace] = c.Name
	}
}

// refuseNamespaces refuses to give the Job of a cluster a namespace in which Secrets of others are.
func (f *openedFleet) refuseNamespaces(all []fleetCluster) (problems []error) {
	taken := map[string]string{f.Namespace: "the fleet's own, with the keys and tokens of all clusters"}
	for _, c := range f.Clusters {
		taken[fleet.StateNamespace(f.Namespace, c.Name)] = "that of the state of cluster " + c.Name
	}
	for _, c := range all {
		whose := taken[c.cfg.Namespace]
		if strings.HasPrefix(c.cfg.Namespace, "kube-") {
			whose = "one of Kubernetes itself"
		}
		if whose != "" {
			problems = append(problems, fmt.Errorf("cluster %s: namespace %s is %s: the cluster's Job reads all Secrets in its "+
				"namespace; name another one, or leave namespace away", c.Name, c.cfg.Namespace, whose))
		}
	}
	return problems
}

// stateOf is the place of a cluster's state.
func (f *openedFleet) stateOf(cluster string) string {
	return config.StateSecretsScheme + fleet.StateNamespace(f.Namespace, cluster)
}

// keySecrets are the Secrets with the keys to the states of clusters, each made from the operator's key.
func (f *openedFleet) keySecrets(identity string, clusters []string) (secrets []*corev1.Secret, err error) {
	for _, cluster := range clusters {
		key, err := clusterKey(identity, cluster)
		if err != nil {
			return nil, usage.Errorf("make the key to the state of cluster %s: %w", cluster, err)
		}
		f.console.hide.Learn(key)
		secrets = append(secrets, fleet.Secret(f.Namespace, fleet.KeyName(cluster), fleet.IdentitySecretKey, []byte(key)))
	}
	return secrets, nil
}

// scopeOf is the cluster as a Job of a fleet has its state, also in a rehearsal.
func scopeOf(cluster string) keys.Scope {
	return keys.Scope{Environment: statedir.EnvironmentHetzner, Cluster: cluster}
}

// clusterKey is the key to the state of one cluster, which opens no other's.
func clusterKey(identity, cluster string) (string, error) {
	all, err := keys.ParseClusters([]byte(identity), scopeOf(cluster))
	if err != nil {
		return "", err
	}
	return all[0].Secret(), nil
}

// rekeyWithin is how long moveStates waits for the lease of a state: that of a run which was killed has to expire.
const rekeyWithin = 3 * time.Minute

// moveStates moves the states of clusters out of the fleet's namespace, where earlier releases had them. Before that
// each is written anew with the operator's key, so that the key of the cluster opens it.
func (f *openedFleet) moveStates(ctx context.Context, clusters []string) error {
	client, err := f.clientset()
	if err != nil {
		return err
	}
	from := objectstore.Secrets(client.CoreV1().Secrets(f.Namespace), f.Namespace)
	for _, cluster := range clusters {
		namespace := fleet.StateNamespace(f.Namespace, cluster)
		to := objectstore.Secrets(client.CoreV1().Secrets(namespace), namespace)
		if err := f.rekey(ctx, from, cluster); err != nil {
			return fmt.Errorf("write the state of cluster %s anew, to move it to namespace %s: %w", cluster, namespace, err)
		}
		if err := remotestate.Move(ctx, from, to, statedir.EnvironmentHetzner, cluster); err != nil {
			return err
		}
	}
	return nil
}

// rekey has the state of a cluster opened by the key of the cluster, too. A run that is at work keeps it waiting.
func (f *openedFleet) rekey(ctx context.Context, store objectstore.Store, cluster string) (err error) {
	_, _, err = store.Get(ctx, remotestate.Name(statedir.EnvironmentHetzner, cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	identity, err := f.storedIdentity(ctx)
	if err != nil {
		return err
	}
	read, err := remotestate.ReadKeys([]byte(identity), scopeOf(cluster))
	if err != nil {
		return err
	}
	// First, so that it is written for the key of the cluster: age does not combine that with a post-quantum key.
	own, err := read.Clusters[0].Identity()
	if err != nil {
		return err
	}
	read.Identities = append([]age.Identity{own}, read.Identities...)
	scratch, err := os.MkdirTemp("", "slipway-rekey-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	tell(f.console, "the state of cluster %s is moved to namespace %s, and written anew with the key of the cluster; what an earlier "+
		"release wrote is not authenticated, and is taken as it is", cluster, fleet.StateNamespace(f.Namespace, cluster))
	place := remotestate.Place{Store: store, Cluster: cluster, Environment: statedir.EnvironmentHetzner, Keys: read,
		Dir: scratch,
		Who: remotestate.Here("fleet")}
	_, _, err = place.Rekey(ctx, rekeyWithin, true, sayLines(f.console))
	return err
}

func (f *openedFleet) clientset() (kubernetes.Interface, error) {
	c, err := clientcmd.RESTConfigFromKubeConfig(f.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("open the management cluster: %w", err)
	}
	c.UserAgent, c.QPS = "slipway", -1 // the API server has limits of its own
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("open the management cluster: %w", err)
	}
	return client, nil
}

// relocated is a change whose Job works as those of this release do, with an account, a key and a place for its state
// of its own, and what it can reach.
func (f *openedFleet) relocated(change fleet.Change) (fleet.Change, fleet.Access, error) {
	document := map[string]any{}
	if err := yaml.Unmarshal(change.Files[fleet.ChangeConfigFile], &document); err != nil {
		return change, fleet.Access{}, fmt.Errorf("the configuration of cluster %s: %w", change.Cluster, err)
	}
	namespace, _ := document["namespace"].(string)
	if namespace == "" {
		namespace = config.DefaultNamespace
	}
	change.Account, change.Key = fleet.AccountName(change.Cluster), fleet.KeyName(change.Cluster)
	if place := f.stateOf(change.Cluster); document["state"] != place {
		document["state"] = place
		data, err := yaml.Marshal(document)
		if err != nil {
			return change, fleet.Access{}, err
		}
		change.Files[fleet.ChangeConfigFile] = data
	}
	return change, f.access(change.Cluster, namespace), nil
}
