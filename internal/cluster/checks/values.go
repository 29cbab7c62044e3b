package checks

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// talosForbids are capabilities that no workload has on Talos.
var talosForbids = []string{"SYS_MODULE"}

// Values refuses Helm values that the charts allow and that do not work in a cluster of Talos servers at Hetzner. It
// makes no request.
func Values(cfg config.Config, sources render.Sources) error {
	var problems []error
	for _, in := range render.AllCharts(cfg, sources) {
		problems = append(problems, RefuseValues(cfg, sources, in))
	}
	return errors.Join(problems...)
}

// RefuseValues is CheckValues for one chart.
func RefuseValues(cfg config.Config, sources render.Sources, in render.Chart) error {
	if f := ChartValues(cfg, sources, in); f != nil {
		return fmt.Errorf("%s; %s", f.Reason, f.Hint)
	}
	return nil
}

// ChartValues is what is wrong with a chart's values; nil: nothing.
func ChartValues(cfg config.Config, sources render.Sources, in render.Chart) *ValueProblem {
	values, err := in.Values.Values(sources.Vars)
	if err != nil {
		return problemf("correct the file", "%v", err)
	}
	basic := []string{sources.Cilium.Path, sources.HcloudCCM.Path, sources.TalosCCM.Path}
	if f := underOwnName(in, values); f != nil && slices.Contains(basic, in.Values.Path) {
		return f
	}
	switch in.Values.Path {
	case sources.Cilium.Path:
		return unfitCilium(in.Values.Name, values, ciliumIn{forwardsDNS: forwardsDNS(cfg, sources), routed: routed(sources)})
	case sources.HcloudCCM.Path:
		return unfitCCM(cfg, in.Values.Name, values)
	case sources.TalosCCM.Path:
		return unfitTalosCCM(in.Values.Name, values)
	default:
		return unfitAddon(cfg, in, values)
	}
}

// underOwnName refuses values under the name of their chart, as they are written for a chart that depends on it: Helm
// would ignore them. Add-ons may have a value of their own name.
func underOwnName(in render.Chart, values map[string]any) *ValueProblem {
	if _, nested := values[in.Chart.Name].(map[string]any); !nested {
		return nil
	}
	return problemf("write what is below it at the top level", "%s: the values are under %s:, as for a chart that "+
		"depends on it: Helm would ignore them", in.Values.Name, in.Chart.Name)
}

// createdKeys are what the step hcloud-ccm writes into the Secret config.CCMSecretName.
var createdKeys = []string{render.HCloudTokenKey, render.HCloudNetworkKey}

func unfitCCM(cfg config.Config, file string, values map[string]any) *ValueProblem {
	if f := unmet(file, values, []want{
		{"networking.enabled", "true", "nodes are known by their private addresses"},
		{"networking.clusterCIDR", cfg.PodCIDR, "it is POD_CIDR"},
		{"networking.network.valueFrom.secretKeyRef.name", config.CCMSecretName,
			"the step hcloud-ccm creates that Secret"},
		{"networking.network.valueFrom.secretKeyRef.key", render.HCloudNetworkKey,
			"the step hcloud-ccm writes it there"},
	}); f != nil {
		return f
	}
	env, _, _ := unstructured.NestedMap(values, "env")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		is, mapping := env[name].(map[string]any)
		if value, given := is["value"]; !mapping || given {
			if !mapping {
				value = env[name]
			}
			if _, text := value.(string); !text || !mapping {
				return problemf(fmt.Sprintf("write value: \"%s\" below env.%s", shown(value), name),
					"%s: env.%s is no environment variable of a container: that has a text as value, and YAML reads numbers, "+
						"true and false as none without quotes", file, name)
			}
		}
		secret, named, _ := unstructured.NestedString(is, "valueFrom", "secretKeyRef", "name")
		key, _, _ := unstructured.NestedString(is, "valueFrom", "secretKeyRef", "key")
		optional, _, _ := unstructured.NestedBool(is, "valueFrom", "secretKeyRef", "optional")
		if named && !optional && (secret != config.CCMSecretName || !slices.Contains(createdKeys, key)) {
			return problemf(fmt.Sprintf("write %s with one of the keys %s, a value, or optional: true", config.CCMSecretName,
				strings.Join(createdKeys, ", ")), "%s: env.%s is key %s of Secret %s, which no step creates: the Pod would not start",
				file, name, key, secret)
		}
	}
	if token, _, _ := unstructured.NestedMap(values, "env", "HCLOUD_TOKEN"); len(token) == 0 {
		return problemf("leave env.HCLOUD_TOKEN to the built-in file", "%s: env.HCLOUD_TOKEN is missing: the CCM has no token",
			file)
	}
	if routes(values) && !inside(prefixOf(cfg.PodCIDR), prefixOf(cfg.NetworkCIDR)) {
		return problemf("choose a podCidr inside of networkCidr, or leave HCLOUD_NETWORK_ROUTES_ENABLED at false",
			"%s: env.HCLOUD_NETWORK_ROUTES_ENABLED is true, and Pods have %s, which is not inside of the network %s: Hetzner routes "+
				"nothing else", file, cfg.PodCIDR, cfg.NetworkCIDR)
	}
	return nil
}

// prefixOf is a range; the zero Prefix where it is none, which the configuration's own checks say.
func prefixOf(text string) netip.Prefix {
	p, _ := netip.ParsePrefix(text)
	return p
}

// routes reports whether the Hetzner CCM with these values creates routes to the nodes' Pods. It does by its own
// default.
func routes(values map[string]any) bool {
	value, found, _ := unstructured.NestedFieldNoCopy(values, "env", "HCLOUD_NETWORK_ROUTES_ENABLED", "value")
	return !found || fmt.Sprint(value) == "true"
}

func routed(sources render.Sources) bool {
	values, err := sources.HcloudCCM.Values(sources.Vars)
	return err == nil && routes(values)
}

// forwardsDNS reports whether the control plane's machine configuration forwards the DNS of Pods to the host; true
// where that cannot be found out, because it does by default.
func forwardsDNS(cfg config.Config, sources render.Sources) bool {
	objects, err := Rendered(cfg, sources)
	if err != nil {
		return true
	}
	for _, p := range Patched(objects) {
		m, err := p.merged(cfg)
		if err != nil || m.Machine().Features().HostDNS().ForwardKubeDNSToHost() {
			return true
		}
	}
	return false
}

// tunnelPort is the UDP port of Cilium's tunnel between nodes; 0: it has none.
func tunnelPort(sources render.Sources) uint16 {
	values, err := sources.Cilium.Values(sources.Vars)
	if err != nil || fmt.Sprint(values["routingMode"]) == "native" {
		return 0
	}
	var port uint16
	if _, err := fmt.Sscan(fmt.Sprint(values["tunnelPort"]), &port); err == nil && port > 0 {
		return port
	}
	if fmt.Sprint(values["tunnelProtocol"]) == "geneve" {
		return 6081
	}
	return 8472
}

// unfitAddon looks at the shipped add-ons; nothing is known of others.
func unfitAddon(cfg config.Config, in render.Chart, values map[string]any) *ValueProblem {
	switch in.Release {
	case config.AddonCSI:
		for _, other := range []string{"value", "file"} {
			if s, _, _ := unstructured.NestedString(values, "controller", "hcloudToken", other); s != "" {
				return nil // the operator brings a token of their own
			}
		}
		const why = "the step hcloud-ccm creates that Secret"
		return unmet(in.Values.Name, values, []want{
			{"controller.hcloudToken.existingSecret.name", config.CCMSecretName, why},
			{"controller.hcloudToken.existingSecret.key", render.HCloudTokenKey, why},
		})
	case config.AddonAutoscaler:
		return unmet(in.Values.Name, values, []want{
			{"cloudProvider", "clusterapi", "Cluster API creates and deletes the servers"},
			{"clusterAPIMode", "incluster-incluster", "the cluster manages itself"},
			{"autoDiscovery.clusterName", cfg.ClusterName, "it is CLUSTER_NAME"},
			{"autoDiscovery.namespace", cfg.Namespace, "the MachineDeployments are there"},
		})
	}
	return nil
}

// ciliumIn is what Cilium's values have to fit.
type ciliumIn struct {
	forwardsDNS bool // Talos answers the Pods' DNS on the host
	routed      bool // the Hetzner CCM creates routes to the nodes' Pods
}

func unfitCilium(file string, values map[string]any, in ciliumIn) *ValueProblem {
	wants := []want{
		{"ipam.mode", "kubernetes", "nodes take their Pod range from Kubernetes"},
		{"kubeProxyReplacement", "true", "Talos runs no kube-proxy here"},
		{"k8sServicePort", kubePrismPort, "KubePrism listens there"},
		{"cgroup.autoMount.enabled", "false", "Talos mounts the cgroup file system itself"},
	}
	if host := fmt.Sprint(values["k8sServiceHost"]); host != "127.0.0.1" {
		wants = append(wants, want{"k8sServiceHost", "localhost",
			"the API server is reached by KubePrism on every node"})
	}
	if in.forwardsDNS {
		wants = append(wants, want{"bpf.hostLegacyRouting", "true",
			"Pods' DNS goes to Talos's host DNS (machine.features.hostDNS.forwardKubeDNSToHost)"})
	}
	if f := unmet(file, values, wants); f != nil {
		return f
	}
	if fmt.Sprint(values["routingMode"]) == "native" && !in.routed {
		return problemf("remove routingMode: native, or write env.HCLOUD_NETWORK_ROUTES_ENABLED.value: \"true\" into "+
			"bootstrap/hcloud-ccm-values.yaml, with POD_CIDR inside of NETWORK_CIDR and ipv4NativeRoutingCIDR: "+
			"${NETWORK_CIDR} here",
			"%s: routingMode is native, and nothing creates routes between the nodes' Pods (HCLOUD_NETWORK_ROUTES_ENABLED of the "+
				"Hetzner CCM is not true): Pods of different nodes would not reach each other", file)
	}
	masquerades := fmt.Sprint(values["enableIPv4Masquerade"]) != "false" && !nestedTruth(values, "ipMasqAgent", "enabled")
	native := fmt.Sprint(values["routingMode"]) == "native"
	if routed, _ := values["ipv4NativeRoutingCIDR"].(string); native && masquerades && routed == "" {
		return problemf("write ipv4NativeRoutingCIDR: ${NETWORK_CIDR}", "%s: routingMode is native, and "+
			"ipv4NativeRoutingCIDR is missing: "+
			"Cilium's agents would end at their start, as they have to know what is not masqueraded", file)
	}
	for _, who := range []string{"ciliumAgent", "cleanCiliumState"} {
		listed, found, err := unstructured.NestedStringSlice(values, "securityContext", "capabilities", who)
		if err != nil || !found {
			return problemf("list them without SYS_MODULE",
				"%s: securityContext.capabilities.%s is missing: the chart's own list has SYS_MODULE, which Talos forbids", file,
				who)
		}
		for _, c := range listed {
			if slices.Contains(talosForbids, c) {
				return problemf("take it out", "%s: securityContext.capabilities.%s has %s, which Talos forbids", file, who, c)
			}
		}
	}
	return nil
}

func nestedTruth(values map[string]any, path ...string) bool {
	is, _, _ := unstructured.NestedFieldNoCopy(values, path...)
	return fmt.Sprint(is) == "true"
}

func unfitTalosCCM(file string, values map[string]any) *ValueProblem {
	listed, _, err := unstructured.NestedStringSlice(values, "enabledControllers")
	if err != nil || !slices.Equal(listed, []string{"node-csr-approval"}) {
		return problemf("write enabledControllers: [node-csr-approval]",
			"%s: enabledControllers is %v: with others the two controllers fight over the nodes", file, listed)
	}
	return nil
}

// ValueProblem is a value that does not work in a cluster of Talos servers at Hetzner.
type ValueProblem struct {
	Reason string
	Hint   string // what to do next
}

func problemf(hint, format string, args ...any) *ValueProblem {
	return &ValueProblem{Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// unmet names the values that are not as they are wanted; nil: all are.
func unmet(where string, values map[string]any, wants []want) *ValueProblem {
	var problems, hints []string
	for _, u := range unmetOf(values, wants) {
		problems, hints = append(problems, u.problem()), append(hints, u.hint())
	}
	if len(problems) == 0 {
		return nil
	}
	return problemf("write "+strings.Join(hints, ", "), "%s: %s", where, strings.Join(problems, "; "))
}

// shown is a value as a message may have it: a number, true or false. Any other text may be a token.
func shown(value any) string {
	text := fmt.Sprint(value)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	if _, err := strconv.ParseBool(text); err == nil {
		return text
	}
	return "TEXT"
}
