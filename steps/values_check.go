package steps

import (
	"context"
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

// CheckValues refuses Helm values that the charts allow and a cluster of Talos servers at Hetzner does not bear. It needs
// nothing but the files.
func (p *Plan) CheckValues() error {
	var problems []error
	for _, in := range installations(p.b.cfg, p.b.sources) {
		problems = append(problems, refuseValues(p.b.cfg, p.b.sources, in))
	}
	return errors.Join(problems...)
}

func installations(cfg config.Config, sources render.Sources) []charts.Installation {
	return []charts.Installation{charts.Cilium(cfg, sources), charts.HCloudCCM(cfg, sources), charts.TalosCCM(cfg, sources)}
}

// refuseValues is CheckValues for one chart.
func refuseValues(cfg config.Config, sources render.Sources, in charts.Installation) error {
	if f := unfitValues(cfg, sources, in); f != nil {
		return fmt.Errorf("%s; %s", f.Reason, f.WayOut)
	}
	return nil
}

// helmValues looks for what the charts allow and a cluster of Talos servers at Hetzner does not bear.
func (d *Doctor) helmValues(context.Context) Finding {
	for _, in := range installations(d.b.cfg, d.b.sources) {
		if f := unfitValues(d.b.cfg, d.b.sources, in); f != nil {
			return *f
		}
	}
	return ok("Cilium fits Talos (capabilities, cgroups, KubePrism), the Hetzner CCM knows the network, the Talos CCM approves certificates only")
}

// unfitValues is what is wrong with a chart's values; nil: nothing.
func unfitValues(cfg config.Config, sources render.Sources, in charts.Installation) *Finding {
	values, err := in.Values.Values(sources.Vars)
	if err != nil {
		f := failed("correct the file", "%v", err)
		return &f
	}
	switch in.Values.Path {
	case sources.Cilium.Path:
		return unfitCilium(in.Values.Name, values)
	case sources.HcloudCCM.Path:
		return unmet(in.Values.Name, values, []want{
			{[]string{"networking", "enabled"}, "true", "nodes are known by their private addresses"},
			{[]string{"networking", "clusterCIDR"}, cfg.PodCIDR, "it is POD_CIDR"},
			{[]string{"networking", "network", "valueFrom", "secretKeyRef", "name"}, config.CCMSecretName, "the step hcloud-ccm makes that Secret"},
			{[]string{"networking", "network", "valueFrom", "secretKeyRef", "key"}, charts.HCloudNetworkKey, "the step hcloud-ccm writes it there"},
		})
	default:
		return unfitTalosCCM(in.Values.Name, values)
	}
}

func unfitCilium(file string, values map[string]any) *Finding {
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
			f := failed("list them without SYS_MODULE",
				"%s: securityContext.capabilities.%s is missing: the chart's own list has SYS_MODULE, which Talos forbids", file, who)
			return &f
		}
		for _, c := range listed {
			if slices.Contains(talosForbids, c) {
				f := failed("take it out", "%s: securityContext.capabilities.%s has %s, which Talos forbids", file, who, c)
				return &f
			}
		}
	}
	return nil
}

func unfitTalosCCM(file string, values map[string]any) *Finding {
	listed, _, err := unstructured.NestedStringSlice(values, "enabledControllers")
	if err != nil || !slices.Equal(listed, []string{"node-csr-approval"}) {
		f := failed("write enabledControllers: [node-csr-approval]",
			"%s: enabledControllers is %v: with others the two controllers fight over the nodes", file, listed)
		return &f
	}
	return nil
}
