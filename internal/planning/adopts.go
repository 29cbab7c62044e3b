package planning

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/steps"
)

// Adopts names the steps of a run that takes a cluster over which find what exists and change nothing in it. Of the
// others that is not so, or not known. bill is what the run makes at Hetzner; nil: that is not known. unchanged tells
// that applying the objects changes none of them.
func (b Bootstrap) Adopts(ctx context.Context, cluster *claims.ExistingCluster, bill *orders.Bill,
	unchanged bool) map[string]bool {
	p, adopts := b.Plan, map[string]bool{b.Plan.Management.Name(): true}
	for _, name := range steps.ReadOnlySteps() {
		adopts[name] = true
	}
	if bill != nil {
		makes := func(kinds ...hetzner.Kind) bool {
			return slices.ContainsFunc(bill.New, func(o hetzner.Order) bool { return slices.Contains(kinds, o.Kind) })
		}
		adopts[p.Image.Name()] = !makes(hetzner.KindSnapshot)
		adopts[p.Endpoint.Name()] = !makes(hetzner.KindLoadBalancer, hetzner.KindPrimaryIP)
	}
	adopts[p.Cluster.Name()], adopts[p.Workers.Name()] = unchanged, unchanged
	adopts[p.Pivot.Name()], adopts[p.Clean.Name()] = cluster.ManagesItself, cluster.ManagesItself
	// Who does not answer is no error of the plan: the steps that work there are planned as run.
	_, _ = wait.PromptlyFrom(ctx, silent, func(ctx context.Context) (none struct{}, err error) {
		return none, b.adoptsInClusters(ctx, cluster, adopts)
	})
	return adopts
}

// adoptsInClusters is Adopts for what is in the cluster that manages this one, and in this one.
func (b Bootstrap) adoptsInClusters(ctx context.Context, cluster *claims.ExistingCluster,
	adopts map[string]bool) error {
	manager, _, err := b.manager(ctx)
	if err != nil || manager == nil {
		return err
	}
	serve := providersServe(ctx, b.Cfg, manager)
	adopts[b.Plan.Providers.Name()] = serve
	adopts[b.Plan.Secret.Name()] = b.hasToken(ctx, manager, b.Cfg.Namespace, config.TokenSecretName, config.TokenSecretKey)
	if cluster.ManagesItself {
		adopts[b.Plan.WorkloadProviders.Name()] = serve
	}
	data, err := connect.WorkloadKubeconfig(ctx, manager, b.Cfg.Namespace, b.Cfg.ClusterName)
	if err != nil {
		return err
	}
	workload, err := b.Tools.Connect(data)
	if err != nil {
		return err
	}
	ccm := render.HCloudCCMChart(b.Cfg, b.Sources)
	hasTokens := b.hasCloudControllerSecret(ctx, workload, ccm.Namespace)
	adopts[b.Plan.OwnSecret.Name()] = cluster.ManagesItself && adopts[b.Plan.Secret.Name()] && hasTokens
	for _, in := range render.AllCharts(b.Cfg, b.Sources) {
		is := b.isInstalled(workload, in)
		adopts[in.Program] = is && (in.Program != ccm.Program || hasTokens)
		adopts[steps.AddonStep(in.Program)] = is
	}
	return nil
}

// providersServe tells whether the configured providers are installed in a cluster and serve.
func providersServe(ctx context.Context, cfg config.Config, in *kube.Cluster) bool {
	installed, err := capi.InstalledProviders(ctx, in)
	for label, version := range capi.ProviderVersions(cfg) {
		if err != nil || installed[label] != version {
			return false
		}
	}
	unready, err := capiinit.Unready(ctx, in)
	return err == nil && unready == ""
}

// hasToken tells whether a Secret has the token of this command.
func (b Bootstrap) hasToken(ctx context.Context, in *kube.Cluster, namespace, name, key string) bool {
	secret := &corev1.Secret{}
	err := in.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	return err == nil && string(secret.Data[key]) == b.Tools.Token.Reveal()
}

// hasCloudControllerSecret tells whether the Secret of the Hetzner cloud controller manager is as a run would write it.
func (b Bootstrap) hasCloudControllerSecret(ctx context.Context, in *kube.Cluster, namespace string) bool {
	is := &corev1.Secret{}
	if in.Get(ctx, client.ObjectKey{Namespace: namespace, Name: config.CCMSecretName}, is) != nil {
		return false
	}
	network, err := hetzner.NetworkID(ctx, b.Tools.Hetzner, b.Cfg.ClusterName)
	if err != nil {
		return false
	}
	for key, value := range apply.CloudControllerData(b.Cfg, b.Tools, network, is) {
		if string(is.Data[key]) != value {
			return false
		}
	}
	return true
}

// isInstalled tells whether a release is deployed from the configured chart with the configured values.
func (b Bootstrap) isInstalled(in *kube.Cluster, chart render.Chart) bool {
	helm, err := in.Helm(chart.Namespace, "", func(string, ...any) {})
	if err != nil {
		return false
	}
	is, err := helm.Deployed(chart.Release)
	if err != nil || is == nil || is.Chart != chart.Name || is.Version != chart.Version {
		return false
	}
	values, err := chart.Values.Values(b.Sources.Vars)
	return err == nil && sameValues(is.Values, values)
}

// sameValues compares values as JSON has them, as Helm's records are JSON.
func sameValues(a, b map[string]any) bool {
	plain := func(values map[string]any) (out map[string]any) {
		if data, err := json.Marshal(values); err == nil && len(values) > 0 {
			_ = json.Unmarshal(data, &out) // what Marshal wrote
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
