package apply

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Token writes the token where manifests/cluster.yaml tells CAPH to look, and returns the UID of its Secret. The
// label makes the Secret move along when the cluster is moved into itself, also before CAPH has put its own mark on it.
func Token(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, mgmt *kube.Cluster) (string,
	error) {
	if err := refuseToken(ctx, cfg, tools, mgmt); err != nil {
		return "", err
	}
	if err := Namespace(ctx, cfg, say, mgmt); err != nil {
		return "", err
	}
	say("writing Secret %s/%s", cfg.Namespace, config.TokenSecretName)
	return Secret(ctx, say, mgmt, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: config.TokenSecretName,
			Labels: map[string]string{capi.MoveLabel: ""}},
		Data: map[string][]byte{config.TokenSecretKey: []byte(tools.Token.Reveal())},
	})
}

// refuseTokenOfOtherCluster refuses to replace a token that other clusters in the namespace are managed with, unless
// the new one is of the project that has their servers: then all of them get a new token.
func refuseTokenOfOtherCluster(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt *kube.Cluster) error {
	all, err := capi.Clusters(ctx, mgmt, client.InNamespace(cfg.Namespace))
	if err != nil {
		return fmt.Errorf("find out which clusters use Secret %s/%s: %w", cfg.Namespace, config.TokenSecretName, err)
	}
	for _, o := range all {
		if o.GetName() == cfg.ClusterName {
			continue
		}
		machines, err := capi.List(ctx, mgmt, cfg.Namespace, capi.HCloudMachineKind, o.GetName())
		if err != nil && !kube.Absent(err) {
			return err
		}
		servers, err := hetzner.Servers(ctx, tools.Hetzner, o.GetName())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(servers, func(s hetzner.Server) bool { return capi.HasServer(s, machines) }) {
			return fmt.Errorf("cluster %s is managed from namespace %s, too, and with another token than cluster %s, and a "+
				"namespace has one token: Secret %s/%s is not replaced. Set NAMESPACE to a namespace for cluster %s alone",
				o.GetName(), cfg.Namespace, cfg.ClusterName, cfg.Namespace, config.TokenSecretName, cfg.ClusterName)
		}
	}
	return nil
}

// refuseToken refuses to write a token that may not write, and to replace the token with which a management cluster
// manages servers by a token whose project has none of them. CAPH would create all of them a second time there. It
// happens where another state folder, with the same CLUSTER_NAME in another Hetzner project, adopts the management
// cluster on this machine by its name.
func refuseToken(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt *kube.Cluster) error {
	secret := &corev1.Secret{}
	err := mgmt.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: config.TokenSecretName}, secret)
	if err == nil && string(secret.Data[config.TokenSecretKey]) == tools.Token.Reveal() {
		return nil
	}
	absent := kube.Absent(err)
	if err != nil && !absent {
		return fmt.Errorf("read Secret %s/%s: %w", cfg.Namespace, config.TokenSecretName, err)
	}
	if err := CheckToken(ctx, tools, cfg.Namespace, config.TokenSecretName); err != nil || absent {
		return err
	}
	if err := refuseTokenOfOtherCluster(ctx, cfg, tools, mgmt); err != nil {
		return err
	}
	machines, err := capi.List(ctx, mgmt, cfg.Namespace, capi.HCloudMachineKind, cfg.ClusterName)
	if kube.Absent(err) || err == nil && !slices.ContainsFunc(machines, capi.HasHCloudServer) {
		return nil
	}
	if err != nil {
		return err
	}
	// A restore replaces the objects of servers that are gone.
	if restoring, err := records.ReadRestore(tools.Files); err != nil || restoring != nil && restoring.Ended.IsZero() {
		return err
	}
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(servers, func(s hetzner.Server) bool { return capi.HasServer(s, machines) }) {
		return nil
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.GetName())
	}
	return fmt.Errorf("management cluster %s manages servers %s with another token, and the project of this token has "+
		"none of them: the token is not replaced, because CAPH would create these servers a second time. Where the "+
		"cluster is in another Hetzner project, choose another CLUSTER_NAME for this one; where its servers were "+
		"deleted, restore it from a backup, or destroy it first",
		cfg.ManagementName(), strings.Join(names, ", "))
}

// CloudControllerSecret writes the Secret from which the hcloud cloud controller manager reads the Hetzner token and
// the ID of the network, and gives its UID. Where it replaces other content it says so in an annotation, for
// RestartReaders; a token that may only read is not written.
func CloudControllerSecret(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	workload *kube.Cluster, namespace string, network int64) (uid string, err error) {
	is := &corev1.Secret{}
	err = workload.Get(ctx, client.ObjectKey{Namespace: namespace, Name: config.CCMSecretName}, is)
	if err != nil && !kube.Absent(err) {
		return "", fmt.Errorf("get Secret %s/%s: %w", namespace, config.CCMSecretName, err)
	}
	data := map[string][]byte{}
	for key, value := range CloudControllerData(cfg, tools, network, is) {
		data[key] = []byte(value)
	}
	annotations := map[string]string{}
	if at := is.Annotations[capi.ReplacedAnnotation]; at != "" {
		annotations[capi.ReplacedAnnotation] = at
	}
	for key, value := range data {
		if err == nil && string(is.Data[key]) != string(value) {
			annotations[capi.ReplacedAnnotation] = time.Now().UTC().Format(time.RFC3339Nano)
		}
	}
	if err != nil || string(is.Data[render.HCloudTokenKey]) != tools.Token.Reveal() {
		if err := CheckToken(ctx, tools, namespace, config.CCMSecretName); err != nil {
			return "", err
		}
	}
	return Secret(ctx, say, workload, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.CCMSecretName, Annotations: annotations},
		Data:       data,
	})
}

// CheckToken refuses to put a token that may not write into a Secret: what works with it would stop.
func CheckToken(ctx context.Context, tools platform.Tools, namespace, name string) error {
	if err := hetzner.CheckWrite(ctx, tools.Hetzner); err != nil {
		return fmt.Errorf("the Hetzner token is not written into Secret %s/%s: %w; %s", namespace, name, err,
			hetzner.AnotherToken)
	}
	return nil
}

// CloudControllerData is what that Secret is to contain. One that names the network by its name, which the controller
// takes as well, keeps it: other content restarts what reads it.
func CloudControllerData(cfg config.Config, tools platform.Tools, network int64, is *corev1.Secret) map[string]string {
	named := strconv.FormatInt(network, 10)
	if string(is.Data[render.HCloudNetworkKey]) == cfg.ClusterName { // as CAPH calls the network
		named = cfg.ClusterName
	}
	return map[string]string{render.HCloudTokenKey: tools.Token.Reveal(), render.HCloudNetworkKey: named}
}
