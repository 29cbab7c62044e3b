package caph

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// targetTimeout bounds one question to a workload cluster's API.
const targetTimeout = 10 * time.Second

// targetClusters are the workload clusters in which kubelets' certificate requests are answered.
type targetClusters struct {
	disabled bool // --disable-csr-approval

	mu      sync.Mutex
	running map[client.ObjectKey]context.CancelFunc
}

func (t *targetClusters) stop(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cancel, ok := t.running[key]; ok {
		cancel()
		delete(t.running, key)
	}
}

// start runs the certificate controller of a workload cluster, once; where it ends by
// itself, the next call starts it again.
func (t *targetClusters) start(ctx context.Context, key client.ObjectKey, run func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.running[key]; ok || t.disabled {
		return
	}
	// A pass's context ends with the program, not with the pass.
	ctx, cancel := context.WithCancel(ctx)
	if t.running == nil {
		t.running = map[client.ObjectKey]context.CancelFunc{}
	}
	t.running[key] = cancel
	go func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err,
				"The certificate controller of the workload cluster ended; it starts again with the next pass")
		}
		if ctx.Err() == nil {
			t.stop(key)
		}
	}()
}

// reconcileTarget reaches into the workload cluster once its API answers: it starts the certificate
// controller there and hands over the token.
func (s *clusterScope) reconcileTarget(ctx context.Context) (reconcile.Result, error) {
	notReady := func(reason, message string) {
		conditions.MarkFalse(s.infra, api.TargetClusterReady, reason, clusterv1.ConditionSeverityInfo, "%s", message)
	}
	config, err := s.targetConfig(ctx)
	switch {
	case apierrors.IsNotFound(err):
		notReady(api.KubeConfigNotFound, "kubeconfig not found (yet)")
		return reconcile.Result{Requeue: true}, nil
	case err != nil:
		conditions.MarkFalse(s.infra, api.TargetClusterReady, api.TargetClusterCreateFailed, clusterv1.ConditionSeverityError,
			"%s", err)
		return reconcile.Result{}, err
	}
	target, err := kubernetes.NewForConfig(config)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("client for the workload cluster %s: %w", s.cluster.Name, err)
	}
	if err := target.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		notReady(api.TargetClusterControlPlaneNotReady, "target cluster not ready")
		return reconcile.Result{Requeue: true}, nil
	}
	key := client.ObjectKeyFromObject(s.infra)
	s.targets.start(ctx, key, func(ctx context.Context) error {
		return answerRequests(ctx, config, s.Client, key.Namespace)
	})
	conditions.MarkTrue(s.infra, api.TargetClusterReady)

	if s.infra.Spec.SkipCreatingHetznerSecretInWorkloadCluster {
		return reconcile.Result{}, nil
	}
	if err := s.writeTargetSecrets(ctx, config); err != nil {
		conditions.MarkFalse(s.infra, api.TargetClusterSecretReady, api.TargetSecretSyncFailed,
			clusterv1.ConditionSeverityError, "%s", err)
		return reconcile.Result{}, err
	}
	conditions.MarkTrue(s.infra, api.TargetClusterSecretReady)
	return reconcile.Result{}, nil
}

// targetConfig is the workload cluster's kubeconfig, from the secret <cluster>-kubeconfig.
func (s *clusterScope) targetConfig(ctx context.Context) (*rest.Config, error) {
	data, err := kubeconfig.FromSecret(ctx, s.reader, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the workload cluster %s: %w", s.cluster.Name, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the workload cluster %s: %w", s.cluster.Name, err)
	}
	config.Timeout = targetTimeout
	return config, nil
}

// ccmSecret is the Secret that hcloud-cloud-controller-manager's chart reads.
const ccmSecret = "hcloud"

// writeTargetSecrets puts the token, the network's id and the endpoint into kube-system/<hetznerSecretRef.name>, and
// where the release does so, into the Secret of hcloud-cloud-controller-manager.
func (s *clusterScope) writeTargetSecrets(ctx context.Context, config *rest.Config) error {
	target, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("client for the workload cluster %s: %w", s.cluster.Name, err)
	}
	name := s.infra.Spec.HetznerSecret.Name
	if err := s.writeTargetSecret(ctx, target, name); err != nil || !s.follows.writesCCMSecret || name == ccmSecret {
		return err
	}
	return s.writeTargetSecret(ctx, target, ccmSecret)
}

// writeTargetSecret writes one of them.
func (s *clusterScope) writeTargetSecret(ctx context.Context, target client.Client, name string) error {
	ref := s.infra.Spec.HetznerSecret
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, target, secret, func() error {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for key, known := range map[string]string{ref.Key.HCloudToken: "token", ref.Key.HetznerRobotUser: "robot-user",
			ref.Key.HetznerRobotPassword: "robot-password"} {
			value, ok := s.secret.Data[key]
			if !ok {
				continue
			}
			secret.Data[key] = value
			if s.follows.writesCCMSecret && name == ccmSecret {
				secret.Data[known] = value
			}
		}
		if s.infra.Status.Network != nil {
			secret.Data["network"] = []byte(strconv.FormatInt(s.infra.Status.Network.ID, 10))
		}
		secret.Data["apiserver-host"] = []byte(s.infra.Spec.ControlPlaneEndpoint.Host)
		secret.Data["apiserver-port"] = []byte(strconv.Itoa(int(s.infra.Spec.ControlPlaneEndpoint.Port)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing secret %s into the workload cluster %s: %w", client.ObjectKeyFromObject(secret),
			s.cluster.Name, err)
	}
	return nil
}
