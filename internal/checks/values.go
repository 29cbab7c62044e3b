package checks

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/charts"
	"github.com/slipway-k8s/slipway/internal/render"
)

// talosForbids are capabilities that no workload has on Talos.
var talosForbids = []string{"SYS_MODULE"}

// Values refuses Helm values that the charts allow and that do not work in a cluster of Talos servers at Hetzner. It
// makes no request.
func Values(cfg config.Config, sources render.Sources) error {
	var problems []error
	for _, in := range charts.All(cfg, sources) {
		problems = append(problems, RefuseValues(cfg, sources, in))
	}
	return errors.Join(problems...)
}

// RefuseValues is CheckValues for one chart.
func RefuseValues(cfg config.Config, sources render.Sources, in charts.Installation) error {
	if f := ChartValues(cfg, sources, in); f != nil {
		return fmt.Errorf("%s; %s", f.Reason, f.Hint)
	}
	return nil
}

// ChartValues is what is wrong with a chart's values; nil: nothing.
func ChartValues(cfg config.Config, sources render.Sources, in charts.Installation) *ValueProblem {
	values, err := in.Values.Values(sources.Vars)
	if err != nil {
		f := problemf("correct the file", "%v", err)
		return &f
	}
	switch in.Values.Path {
	case sources.Cilium.Path:
		return unfitCilium(in.Values.Name, values)
	case sources.HcloudCCM.Path:
		return unmet(in.Values.Name, values, []want{
			{[]string{"networking", "enabled"}, "true", "nodes are known by their private addresses"},
			{[]string{"networking", "clusterCIDR"}, cfg.PodCIDR, "it is POD_CIDR"},
			{[]string{"networking", "network", "valueFrom", "secretKeyRef", "name"}, config.CCMSecretName,
				"the step hcloud-ccm creates that Secret"},
			{[]string{"networking", "network", "valueFrom", "secretKeyRef", "key"}, charts.HCloudNetworkKey,
				"the step hcloud-ccm writes it there"},
		})
	case sources.TalosCCM.Path:
		return unfitTalosCCM(in.Values.Name, values)
	default:
		return unfitAddon(cfg, in, values)
	}
}

// unfitAddon looks at the shipped add-ons; nothing is known of others.
func unfitAddon(cfg config.Config, in charts.Installation, values map[string]any) *ValueProblem {
	switch in.Release {
	case config.AddonCSI:
		token := []string{"controller", "hcloudToken"}
		for _, other := range []string{"value", "file"} {
			if s, _, _ := unstructured.NestedString(values, append(token, other)...); s != "" {
				return nil // the operator brings a token of their own
			}
		}
		const why = "the step hcloud-ccm creates that Secret"
		return unmet(in.Values.Name, values, []want{
			{append(slices.Clone(token), "existingSecret", "name"), config.CCMSecretName, why},
			{append(slices.Clone(token), "existingSecret", "key"), charts.HCloudTokenKey, why},
		})
	case config.AddonAutoscaler:
		return unmet(in.Values.Name, values, []want{
			{[]string{"cloudProvider"}, "clusterapi", "Cluster API creates and deletes the servers"},
			{[]string{"clusterAPIMode"}, "incluster-incluster", "the cluster manages itself"},
			{[]string{"autoDiscovery", "clusterName"}, cfg.ClusterName, "it is CLUSTER_NAME"},
			{[]string{"autoDiscovery", "namespace"}, cfg.Namespace, "the MachineDeployments are there"},
		})
	}
	return nil
}

func unfitCilium(file string, values map[string]any) *ValueProblem {
	f := unmet(file, values, []want{
		{[]string{"ipam", "mode"}, "kubernetes", "nodes take their Pod range from Kubernetes"},
		{[]string{"kubeProxyReplacement"}, "true", "Talos runs no kube-proxy here"},
		{[]string{"k8sServiceHost"}, "localhost", "the API server is reached by KubePrism on every node"},
		{[]string{"k8sServicePort"}, "7445", "KubePrism listens there"},
		{[]string{"cgroup", "autoMount", "enabled"}, "false", "Talos mounts the cgroup file system itself"},
		{[]string{"bpf", "hostLegacyRouting"}, "true", "Pods' DNS goes to Talos's host DNS"},
	})
	if f != nil {
		return f
	}
	for _, who := range []string{"ciliumAgent", "cleanCiliumState"} {
		listed, found, err := unstructured.NestedStringSlice(values, "securityContext", "capabilities", who)
		if err != nil || !found {
			f := problemf("list them without SYS_MODULE",
				"%s: securityContext.capabilities.%s is missing: the chart's own list has SYS_MODULE, which Talos forbids", file,
				who)
			return &f
		}
		for _, c := range listed {
			if slices.Contains(talosForbids, c) {
				f := problemf("take it out", "%s: securityContext.capabilities.%s has %s, which Talos forbids", file, who, c)
				return &f
			}
		}
	}
	return nil
}

func unfitTalosCCM(file string, values map[string]any) *ValueProblem {
	listed, _, err := unstructured.NestedStringSlice(values, "enabledControllers")
	if err != nil || !slices.Equal(listed, []string{"node-csr-approval"}) {
		f := problemf("write enabledControllers: [node-csr-approval]",
			"%s: enabledControllers is %v: with others the two controllers fight over the nodes", file, listed)
		return &f
	}
	return nil
}

// ValueProblem is a value that does not work in a cluster of Talos servers at Hetzner.
type ValueProblem struct {
	Reason string
	Hint   string // what to do next
}

func problemf(hint, format string, args ...any) ValueProblem {
	return ValueProblem{Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// unmet is the first value that is not as it is wanted; nil: all are.
func unmet(where string, values map[string]any, wants []want) *ValueProblem {
	u := unmetOf(values, wants)
	if u == nil {
		return nil
	}
	f := problemf("write "+u.want.dotted()+": "+u.want.is, "%s: %s", where, u.problem())
	return &f
}
