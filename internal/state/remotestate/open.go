package remotestate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// errNoKey has two lines: what is missing, and how to make it.
var errNoKey = errors.New("STATE needs a key: the state is encrypted before it leaves this machine. Name a file with a " +
	"secret key in STATE_IDENTITY_FILE, or put the key into STATE_IDENTITY in the environment\n" +
	"age-keygen -o key.txt creates one; keep a copy where neither this machine nor the store is")

// Access is what a store is opened with.
type Access struct {
	Config      config.Config
	Environment map[string]string
	WorkDir     string
	Hide        *redact.Redactor // learns the secrets that are read
}

// Place is the place of the configured cluster's state, in an environment, with its state folder.
func (a Access) Place(environment, dir, command string) (Place, error) {
	store, err := a.Store()
	if err != nil {
		return Place{}, err
	}
	k, err := a.Keys(keys.Scope{Environment: environment, Cluster: a.Config.ClusterName})
	if err != nil {
		return Place{}, err
	}
	return Place{Store: store, Cluster: a.Config.ClusterName, Environment: environment, Keys: k, Dir: dir,
		Who: Here(command), Lease: a.Config.StateLease.D()}, nil
}

// Keys are those that encrypt, decrypt and authenticate the state of a cluster. Where only the key of another cluster
// is configured, the error wraps keys.ErrOtherCluster.
func (a Access) Keys(of keys.Scope) (k Keys, err error) {
	if k.Recipients, err = keys.ParseRecipients(a.Config.StateRecipients); err != nil {
		return k, usage.Errorf("STATE_RECIPIENTS: %w", err)
	}
	if text := a.Environment[settings.StateIdentityVariable]; text != "" {
		LearnIdentity(a.Hide, text)
		read, err := ReadKeys([]byte(text), of)
		if err != nil {
			return k, usage.Errorf("%s: %w", settings.StateIdentityVariable, err)
		}
		k = k.With(read)
	}
	if a.Config.StateIdentityFile != "" {
		data, err := os.ReadFile(settings.AtHome(a.Config.StateIdentityFile, a.Environment["HOME"]))
		if err != nil {
			return k, usage.Errorf("read the keys to the state (STATE_IDENTITY_FILE): %w", err)
		}
		LearnIdentity(a.Hide, string(data))
		read, err := ReadKeys(data, of)
		if err != nil {
			return k, usage.Errorf("%s (STATE_IDENTITY_FILE): %w", a.Config.StateIdentityFile, err)
		}
		k = k.With(read)
	}
	if len(k.Clusters) == 0 {
		return k, &usage.Error{Err: errNoKey}
	}
	if err := k.Check(); err != nil {
		return k, &usage.Error{Err: err}
	}
	return k, nil
}

// LearnIdentity has the keys of an identity hidden: each is a line.
func LearnIdentity(hide *redact.Redactor, text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			hide.Learn(line)
		}
	}
}

// Store is the configured store. Nothing is asked of it yet.
func (a Access) Store() (objectstore.Store, error) {
	place := a.Config.State
	if folder, is := strings.CutPrefix(place, config.StateFileScheme); is {
		return objectstore.Folder(filepath.Clean(folder)), nil
	}
	if namespace, is := strings.CutPrefix(place, config.StateSecretsScheme); is {
		client, err := a.cluster()
		if err != nil {
			return nil, err
		}
		return objectstore.Secrets(client.CoreV1().Secrets(namespace), namespace), nil
	}
	o := objectstore.S3Options{
		Endpoint: a.Config.StateS3Endpoint, Region: a.Config.StateS3Region,
		AccessKey: a.Environment[settings.AccessKeyVariable], SecretKey: a.Environment[settings.SecretKeyVariable],
		Session: a.Environment[settings.SessionVariable],
	}
	if o.AccessKey == "" || o.SecretKey == "" {
		return nil, usage.Errorf("%s and %s are not both set: %s needs them", settings.AccessKeyVariable,
			settings.SecretKeyVariable, place)
	}
	a.Hide.Learn(o.SecretKey, o.Session)
	bucket, err := objectstore.OpenBucket(place, o)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return objectstore.S3(bucket), nil
}

// Leases are those by which runs find one another: of the namespace in which the state is, and in a Pod without a
// kubeconfig of the Pod's own. There the Jobs of a fleet are together, and each has its state in another namespace.
// ok is false where the state is in no cluster.
func (a Access) Leases() (leases coordinationv1.LeaseInterface, ok bool, err error) {
	namespace, is := strings.CutPrefix(a.Config.State, config.StateSecretsScheme)
	if !is {
		return nil, false, nil
	}
	client, err := a.cluster()
	if err != nil {
		return nil, true, err
	}
	if own := kube.PodNamespace(); a.Config.StateKubeconfig == "" && own != "" {
		namespace = own
	}
	return client.CoordinationV1().Leases(namespace), true, nil
}

// cluster is the one that STATE_KUBECONFIG opens, or that this process runs in.
func (a Access) cluster() (kubernetes.Interface, error) {
	var c *rest.Config
	var err error
	if a.Config.StateKubeconfig != "" {
		path := settings.InFolder(a.WorkDir, settings.AtHome(a.Config.StateKubeconfig, a.Environment["HOME"]))
		if c, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
			return nil, usage.Errorf("open the cluster of the state (STATE_KUBECONFIG): %w", err)
		}
	} else if c, err = rest.InClusterConfig(); err != nil {
		return nil, usage.Errorf("STATE is in a cluster, and this process runs in none: name a kubeconfig in STATE_KUBECONFIG: "+
			"%w", err)
	}
	client, err := Clientset(c)
	if err != nil {
		return nil, fmt.Errorf("open the cluster of the state: %w", err)
	}
	return client, nil
}

// Clientset is for the stores of a cluster.
func Clientset(c *rest.Config) (kubernetes.Interface, error) {
	c.UserAgent, c.QPS = "slipway", -1 // the API server has limits of its own
	return kubernetes.NewForConfig(c)
}

// List lists the clusters that a store has states of, each as its environment and its name.
func List(ctx context.Context, s objectstore.Store) (all [][2]string, err error) {
	names, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if parts := strings.Split(name, "/"); len(parts) == 3 && parts[2] == "state" {
			all = append(all, [2]string{parts[0], parts[1]})
		}
	}
	return all, nil
}
