package talos

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// deniedAPIFlags are the flags that Talos sets and does not let users change: the cluster's identity.
var deniedAPIFlags = []string{
	"etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "client-ca-file", "requestheader-client-ca-file",
	"proxy-client-cert-file", "proxy-client-key-file", "encryption-provider-config", "kubelet-client-certificate",
	"kubelet-client-key", "secure-port", "service-account-key-file", "service-account-signing-key-file",
	"tls-cert-file", "tls-private-key-file",
}

// labAPIFlags are flags of the machine configuration that the lab replaces: one address for each server, and its own
// audit log.
var labAPIFlags = []string{
	"bind-address", "advertise-address", "endpoint-reconciler-type", "egress-selector-config-file",
	"audit-log-path", "audit-policy-file", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize",
}

// labControllerFlags are those of kube-controller-manager and kube-scheduler that Talos sets itself, or a lab does.
var labControllerFlags = []string{
	"bind-address", "secure-port", "kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "tls-cert-file",
	"tls-private-key-file", "cluster-signing-cert-file", "cluster-signing-key-file", "root-ca-file",
	"service-account-private-key-file", "config",
}

// apiServerArgs returns the kube-apiserver's flags besides those of the lab's plane: Talos's own that matter
// to a client, and cluster.apiServer.extraArgs. dir gets the files that they name. dropped says why the oidc
// flags were left out; empty: they were not.
func (c machineConfig) apiServerArgs(dir string) (args []string, dropped string, err error) {
	args = []string{
		"--anonymous-auth=false",
		"--api-audiences=" + c.Cluster().Endpoint().String(),
		"--enable-bootstrap-token-auth",
	}
	admission, err := c.admissionConfig(dir)
	if err != nil {
		return nil, "", err
	}
	args = append(args, admission...)

	api := c.Cluster().APIServer()
	skip := slices.Concat(deniedAPIFlags, labAPIFlags)
	if issuer := last(api.ExtraArgs()["oidc-issuer-url"]); issuer != "" {
		u, err := url.Parse(issuer)
		if err != nil || !isLoopback(u.Hostname()) {
			dropped = fmt.Sprintf(
				"the oidc flags are dropped: kube-apiserver would connect to the issuer %s outside of the lab's network", issuer)
			for flag := range api.ExtraArgs() {
				if strings.HasPrefix(flag, "oidc-") {
					skip = append(skip, flag)
				}
			}
		}
	}
	return append(args, flags(api.ExtraArgs(), skip)...), dropped, nil
}

// admissionConfig writes cluster.apiServer.admissionControl to a file and returns the flag that names it.
func (c machineConfig) admissionConfig(dir string) ([]string, error) {
	var plugins []any
	for _, p := range c.Cluster().APIServer().AdmissionControl() {
		plugins = append(plugins, map[string]any{"name": p.Name(), "configuration": p.Configuration()})
	}
	if len(plugins) == 0 {
		return nil, nil
	}
	b, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster.apiServer.admissionControl: %w", err)
	}
	path := filepath.Join(dir, "admission-control-config.yaml")
	if err := pki.WriteFile(path, b); err != nil {
		return nil, fmt.Errorf("write the admission configuration: %w", err)
	}
	return []string{"--admission-control-config-file=" + path}, nil
}

// encryptionConfig is how Secrets are encrypted in etcd: with the cluster's keys, so that a snapshot is unreadable
// without the machine configuration. The names of the keys are part of what is stored, and those of Talos.
func (c machineConfig) encryptionConfig() []byte {
	key := func(name, secret string) map[string]any {
		return map[string]any{"keys": []any{map[string]any{"name": name, "secret": secret}}}
	}
	var providers []any
	if secret := c.Cluster().SecretboxEncryptionSecret(); secret != "" {
		providers = append(providers, map[string]any{"secretbox": key("key2", secret)})
	}
	if secret := c.Cluster().AESCBCEncryptionSecret(); secret != "" {
		providers = append(providers, map[string]any{"aescbc": key("key1", secret)})
	}
	providers = append(providers, map[string]any{"identity": map[string]any{}})
	b, err := json.Marshal(map[string]any{ // JSON is YAML
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": []any{map[string]any{"resources": []string{"secrets"}, "providers": providers}},
	})
	if err != nil {
		panic(fmt.Sprintf("marshal strings: %v", err))
	}
	return b
}

// flags turns extraArgs into flags, sorted, without those to skip. A flag with several values is given several times.
func flags(extraArgs map[string][]string, skip []string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(extraArgs)) {
		if slices.Contains(skip, name) {
			continue
		}
		for _, value := range extraArgs[name] {
			all = append(all, "--"+name+"="+value)
		}
	}
	return all
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func commaJoined(values []string) string { return strings.Join(values, ",") }
