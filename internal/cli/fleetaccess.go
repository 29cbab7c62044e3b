package cli

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/fleet/objects"
	"github.com/slipway-k8s/slipway/internal/fleet/states"
	"github.com/slipway-k8s/slipway/internal/keys"
	"github.com/slipway-k8s/slipway/internal/objectstore"
	"github.com/slipway-k8s/slipway/internal/statedir"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// access is what the Jobs of a cluster can reach.
func (f *openedFleet) access(cluster, clusterNamespace string) objects.Access {
	return objects.Access{Namespace: f.Namespace, Cluster: cluster, ClusterNamespace: clusterNamespace}
}

// accessOf is what the Jobs of clusters can reach.
func (f *openedFleet) accessOf(all []fleetCluster) (access []objects.Access) {
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

// stateOf is the place of a cluster's state.
func (f *openedFleet) stateOf(cluster string) string {
	return config.StateSecretsScheme + objects.StateNamespace(f.Namespace, cluster)
}

// keySecrets are the Secrets with the keys to the states of clusters, each made from the operator's key.
func (f *openedFleet) keySecrets(identity string, clusters []string) (secrets []*corev1.Secret, err error) {
	for _, cluster := range clusters {
		key, err := clusterKey(identity, cluster)
		if err != nil {
			return nil, usage.Errorf("make the key to the state of cluster %s: %w", cluster, err)
		}
		f.console.hide.Learn(key)
		secrets = append(secrets, objects.Secret(f.Namespace, objects.KeyName(cluster), objects.IdentitySecretKey, []byte(key)))
	}
	return secrets, nil
}

// clusterKey is the key to the state of one cluster, which opens no other's.
func clusterKey(identity, cluster string) (string, error) {
	_, err := keys.ParseClusters([]byte(identity), keys.Scope{Environment: statedir.WorldHetzner, Cluster: cluster})
	return identity, err
}

// moveStates moves the states of clusters out of the fleet's namespace, where earlier releases had them.
func (f *openedFleet) moveStates(ctx context.Context, clusters []string) error {
	client, err := f.clientset()
	if err != nil {
		return err
	}
	from := objectstore.Secrets(client.CoreV1().Secrets(f.Namespace), f.Namespace)
	for _, cluster := range clusters {
		namespace := objects.StateNamespace(f.Namespace, cluster)
		to := objectstore.Secrets(client.CoreV1().Secrets(namespace), namespace)
		if err := states.Move(ctx, from, to, statedir.WorldHetzner, cluster); err != nil {
			return err
		}
	}
	return nil
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

// relocated is a change whose Job works as those of this release do, with an account, a key and a place for its state of its
// own, and what it can reach.
func (f *openedFleet) relocated(change objects.Change) (objects.Change, objects.Access, error) {
	document := map[string]any{}
	if err := yaml.Unmarshal(change.Files[objects.ConfigFile], &document); err != nil {
		return change, objects.Access{}, fmt.Errorf("the configuration of cluster %s: %w", change.Cluster, err)
	}
	namespace, _ := document["namespace"].(string)
	if namespace == "" {
		namespace = config.DefaultNamespace
	}
	change.Account, change.Key = objects.AccountName(change.Cluster), objects.KeyName(change.Cluster)
	if place := f.stateOf(change.Cluster); document["state"] != place {
		document["state"] = place
		data, err := yaml.Marshal(document)
		if err != nil {
			return change, objects.Access{}, err
		}
		change.Files[objects.ConfigFile] = data
	}
	return change, f.access(change.Cluster, namespace), nil
}
