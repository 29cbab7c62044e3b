package adopt

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
)

// pinned are the variables that the configuration of a cluster that exists names, also where they have their defaults,
// which a later release may change.
func pinned(name string) bool {
	return slices.Contains([]string{"CLUSTER_NAME", "NAMESPACE", "LOCATION", "SERVER_TYPE", "CONTROL_PLANE_REPLICAS",
		"LOAD_BALANCER_TYPE", "CONTROL_PLANE_ENDPOINT", "NETWORK_CIDR", "CONTROL_PLANE_CIDR", "POD_CIDR", "SERVICE_CIDR"},
		name) || strings.HasSuffix(name, "_VERSION") && !slices.Contains([]string{"CERT_MANAGER_VERSION", "FLUX_VERSION"}, name)
}

// configurationText is the file bootstrap.yaml of a cluster's configuration. given is what was configured before the
// cluster was asked. To a cluster that manages itself the state folder leads, to another one the file does.
func configurationText(cfg, given config.Config, managesItself bool) ([]byte, error) {
	var text strings.Builder
	text.WriteString("# Written by \"bootstrap adopt\" from the live cluster. docs/reference.md lists what else can be set.\n")
	for _, v := range config.Variables() {
		value := v.Get(cfg)
		manager := v.Name == "MANAGEMENT_KUBECONFIG" && !managesItself && value != ""
		if !pinned(v.Name) && !manager && value == v.Get(given) {
			continue
		}
		line, err := yaml.Marshal(map[string]any{v.Field: typed(v, value)})
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", v.Field, err)
		}
		text.Write(line)
	}
	return []byte(text.String()), nil
}

// typed is a value as YAML has it.
func typed(v config.Variable, value string) any {
	if n, is := v.Pointer(new(config.Config)).(*int); is {
		if _, err := fmt.Sscan(value, n); err == nil {
			return *n
		}
	}
	return value
}
