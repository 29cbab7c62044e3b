package operations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"filippo.io/age"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// rekeyWithin is how long moveStates waits for the lease of a state: that of a run which was killed has to expire.
const rekeyWithin = 3 * time.Minute

// moveStates moves the states of clusters out of the fleet's namespace, where earlier releases had them. Before that
// each is written anew with the operator's key, so that the key of the cluster opens it.
func (f *opened) moveStates(ctx context.Context, clusters []string) error {
	access, err := clientcmd.RESTConfigFromKubeConfig(f.kubeconfig)
	if err != nil {
		return fmt.Errorf("open the management cluster: %w", err)
	}
	client, err := remotestate.Clientset(access)
	if err != nil {
		return fmt.Errorf("open the management cluster: %w", err)
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
func (f *opened) rekey(ctx context.Context, store objectstore.Store, cluster string) (err error) {
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
	f.caller.Note("the state of cluster %s is moved to namespace %s, and written anew with the key of the cluster; what an "+
		"earlier release wrote is not authenticated, and is taken as it is", cluster,
		fleet.StateNamespace(f.Namespace, cluster))
	place := remotestate.Place{Store: store, Cluster: cluster, Environment: statedir.EnvironmentHetzner, Keys: read,
		Dir: scratch, Who: remotestate.Here("fleet")}
	_, _, err = place.Rekey(ctx, rekeyWithin, true, f.caller.Note)
	return err
}

// relocated is a change whose Job works as those of this release do, with an account, a key and a place for its state
// of its own, and what it can reach.
func relocated(namespace string, change fleet.Change) (fleet.Change, fleet.Access, error) {
	document := map[string]any{}
	if err := yaml.Unmarshal(change.Files[fleet.ChangeConfigFile], &document); err != nil {
		return change, fleet.Access{}, fmt.Errorf("the configuration of cluster %s: %w", change.Cluster, err)
	}
	access := fleet.Access{Namespace: namespace, Cluster: change.Cluster, ClusterNamespace: config.DefaultNamespace}
	if own, _ := document["namespace"].(string); own != "" {
		access.ClusterNamespace = own
	}
	change.Account, change.Key = fleet.AccountName(change.Cluster), fleet.KeyName(change.Cluster)
	if place := stateOf(namespace, change.Cluster); document["state"] != place {
		document["state"] = place
		data, err := yaml.Marshal(document)
		if err != nil {
			return change, access, err
		}
		change.Files[fleet.ChangeConfigFile] = data
	}
	return change, access, nil
}
