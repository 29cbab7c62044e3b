package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestDefaultsAreValid(t *testing.T) {
	for _, e := range Defaults().Validate() {
		t.Errorf("the defaults are refused: %v", e)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   string // KEY=VALUE, several separated by blanks
		field string // field of the only error; empty: valid
		want  string // part of the error
	}{
		{"upper case name", "CLUSTER_NAME=K8s", "clusterName", "DNS label"},
		{"name begins with a digit", "CLUSTER_NAME=8s", "clusterName", "letter"},
		{"long name", "CLUSTER_NAME=" + strings.Repeat("a", 33), "clusterName", "32"},
		{"unknown location", "LOCATION=nbg9", "location", "fsn1, hel1"},
		{"server type with blanks", "SERVER_TYPE=", "serverType", "cx33"},
		{"unknown load balancer", "LOAD_BALANCER_TYPE=lb12", "loadBalancerType", "lb11"},
		{"no replicas", "CONTROL_PLANE_REPLICAS=0", "controlPlaneReplicas", "less than one"},
		{"even replicas", "CONTROL_PLANE_REPLICAS=4", "controlPlaneReplicas", "use 3 or 5"},
		{"too many replicas", "CONTROL_PLANE_REPLICAS=11", "controlPlaneReplicas", "placement group"},
		{"one replica", "CONTROL_PLANE_REPLICAS=1", "", ""},
		{"image name as a path", "IMAGE_NAME=a/b", "imageName", "caph-image-name"},
		{"malformed range", "NETWORK_CIDR=10.10.0.0", "networkCidr", "IPv4 range"},
		{"IPv6 range", "POD_CIDR=fd00::/64", "podCidr", "IPv4 range"},
		{"host bits", "CONTROL_PLANE_CIDR=10.10.64.1/25", "controlPlaneCidr", "10.10.64.0/25?"},
		{"servers outside of the network", "CONTROL_PLANE_CIDR=10.11.64.0/25", "controlPlaneCidr", "inside networkCidr 10.10.0.0/16"},
		{"Pods and Services outside of it", "POD_CIDR=10.244.0.0/16 SERVICE_CIDR=10.96.0.0/12", "", ""},
		{"Pods around the network", "POD_CIDR=10.0.0.0/9 SERVICE_CIDR=172.20.0.0/20", "podCidr", "overlaps controlPlaneCidr"},
		{"the smallest range of Services", "SERVICE_CIDR=10.10.96.0/28", "", ""},
		{"no address for the cluster's DNS", "SERVICE_CIDR=10.10.96.0/29", "serviceCidr", "between a /12 and a /28"},
		{"a single Service", "SERVICE_CIDR=10.10.96.0/32", "serviceCidr", "write 10.10.96.0/20"},
		{"more Services than kube-apiserver takes", "SERVICE_CIDR=11.0.0.0/11", "serviceCidr", "tenth address: write 11.0.0.0/12"},
		{"a public network", "NETWORK_CIDR=11.0.0.0/8 CONTROL_PLANE_CIDR=11.0.0.0/24", "networkCidr", "RFC 1918"},
		{"more than a private range", "NETWORK_CIDR=172.0.0.0/8 CONTROL_PLANE_CIDR=172.16.0.0/24", "networkCidr", "RFC 1918"},
		{"a network of one subnet", "NETWORK_CIDR=192.168.1.0/24 CONTROL_PLANE_CIDR=192.168.1.0/25", "", ""},
		{"a network that Hetzner does not create", "NETWORK_CIDR=192.168.1.0/25 CONTROL_PLANE_CIDR=192.168.1.0/26", "networkCidr",
			"write 192.168.1.0/24"},
		{"Hetzner's gateway in the network", "NETWORK_CIDR=172.31.0.0/16 CONTROL_PLANE_CIDR=172.31.64.0/25", "networkCidr",
			"172.31.1.1"},
		{"Hetzner's gateway among the Pods", "POD_CIDR=172.31.0.0/16", "podCidr", "172.31.1.1"},
		{"two ranges of Pods", "POD_CIDR=10.244.0.0/16,fd00::/56", "podCidr", "no dual stack"},
		{"overlap", "SERVICE_CIDR=10.10.128.0/20", "serviceCidr", "overlaps podCidr"},
		{"small subnet", "CONTROL_PLANE_CIDR=10.10.64.0/30", "controlPlaneCidr", "too small"},
		{"few Pod ranges", "POD_CIDR=10.10.128.0/23", "podCidr", "too small"},
		{"a name that YAML reads as true", "CLUSTER_NAME=on", "clusterName", "as true"},
		{"a name that YAML reads as nothing", "CLUSTER_NAME=null", "clusterName", "not as a text"},
		{"an image that YAML reads as a number", "IMAGE_NAME=1.12", "imageName", "as 1.12"},
		{"version without v", "TALOS_VERSION=1.12.2", "talosVersion", "write v1.12.2"},
		{"chart version with v", "CILIUM_VERSION=v1.18.6", "ciliumVersion", "write 1.18.6"},
		{"two numbers", "KUBERNETES_VERSION=v1.32", "kubernetesVersion", "three numbers"},
		{"Kubernetes too old for Talos", "KUBERNETES_VERSION=v1.29.4", "kubernetesVersion", "too old"},
		{"a Kubernetes that Cluster API does not test", "KUBERNETES_VERSION=v1.34.0", "", ""},
		{"a Kubernetes that Talos refuses", "KUBERNETES_VERSION=v1.36.0", "kubernetesVersion", "v1.30 to v1.35"},
		{"a Talos that nothing is known of", "TALOS_VERSION=v1.99.0", "", ""},
		{"unknown version set", "VERSIONS=curent", "versions", "did you mean current?"},
		{"no version set", "VERSIONS=", "", ""},
		{"bootstrap provider of a newer core", "CABPT_VERSION=v0.7.0", "cabptVersion", "choose CABPT v0.6"},
		{"control plane provider of a newer core", "CACPPT_VERSION=v0.6.0", "cacpptVersion", "choose CACPPT v0.5"},
		{"Talos too new for Kubernetes", "TALOS_VERSION=v1.13.9 KUBERNETES_VERSION=v1.30.0", "kubernetesVersion", "too old"},
		{"a core of the contract v1beta2", "CAPI_VERSION=v1.11.0", "", ""},
		{"a core that has ended long ago", "CAPI_VERSION=v1.9.0", "capiVersion", "v1.10 and newer"},
		{"kind's own default", "KIND_NODE_IMAGE=kindest/node:v1.35.0", "", ""},
		{"a kind image of long ago", "KIND_NODE_IMAGE=kindest/node:v1.19.0", "kindNodeImage", "v1.20 and newer"},
		{"kind image without version", "KIND_NODE_IMAGE=kindest/node:latest", "kindNodeImage", "version"},
		{"no kind, no image needed", "KIND_NODE_IMAGE= MANAGEMENT_KUBECONFIG=/some/kubeconfig", "", ""},
		{"local, no image needed", "KIND_NODE_IMAGE= MANAGEMENT=local", "", ""},
		{"existing", "MANAGEMENT=existing MANAGEMENT_KUBECONFIG=/some/kubeconfig", "", ""},
		{"existing, and none named: that of a Pod", "MANAGEMENT=existing", "", ""},
		{"a namespace", "NAMESPACE=team-a", "", ""},
		{"a namespace that is none", "NAMESPACE=Team_A", "namespace", "is not a DNS label"},
		{"a namespace with a long name", "NAMESPACE=a" + strings.Repeat("b", 63), "namespace", "at most 63"},
		{"no namespace", "NAMESPACE=", "namespace", "is not a DNS label"},
		{"no pivot", "PIVOT=false", "", ""},
		{"a pivot that is no answer", "PIVOT=no", "pivot", "write true or false"},
		{"no pivot, and the autoscaler", "PIVOT=false ADDONS=cluster-autoscaler", "pivot", "cluster-autoscaler"},
		{"local, and one named", "MANAGEMENT=local MANAGEMENT_KUBECONFIG=/some/kubeconfig", "managementKubeconfig",
			"remove it"},
		{"unknown management", "MANAGEMENT=docker", "management", "kind, local, existing"},
		{"local, not tested with Cluster API", "MANAGEMENT=local KUBERNETES_VERSION=v1.28.5 TALOS_VERSION=v1.8.4", "", ""},
		{"issuer without client", "OIDC_ISSUER_URL=https://auth.example.com/", "oidcClientId", "both"},
		{"client without issuer", "OIDC_CLIENT_ID=kubernetes", "oidcIssuerUrl", "both"},
		{"plain issuer", "OIDC_ISSUER_URL=http://auth.example.com OIDC_CLIENT_ID=kubernetes", "oidcIssuerUrl", "https"},
		{"issuer and client", "OIDC_ISSUER_URL=https://auth.example.com/ OIDC_CLIENT_ID=kubernetes", "", ""},
		{"relative repository", "PROVIDER_REPOSITORY=repo", "providerRepository", "absolute"},
		{"cert-manager without version", "CERT_MANAGER_URL=/repo/cert-manager.yaml", "certManagerUrl", "both"},
		{"chart repository without scheme", "CILIUM_REPOSITORY=helm.cilium.io", "ciliumRepository", "https://"},
		{"chart repository in a registry", "TALOS_CCM_REPOSITORY=oci://ghcr.io/siderolabs/charts", "", ""},
		{"a registry with a user", "TALOS_CCM_REPOSITORY=oci://me:secret@ghcr.io/siderolabs/charts", "talosCcmRepository",
			"oci://xxxxx@ghcr.io"},
		{"a password that breaks its address", "CILIUM_REPOSITORY=https://me:se%cret@charts.example.com", "ciliumRepository",
			"\"https://xxxxx@charts.example.com\""},
		{"server types and locations", "SERVER_TYPE=cx33,cpx32,cax21 LOCATION=nbg1,fsn1 SPREAD=location", "", ""},
		{"a server type twice", "SERVER_TYPE=cx33,cpx32,cx33", "serverType", "names cx33 twice"},
		{"an unknown location of several", "LOCATION=nbg1,xyz1", "location", "choose one of ash"},
		{"no location", "LOCATION=,", "location", "is empty"},
		{"spread over one location", "SPREAD=location", "spread", "more than one location"},
		{"one server in several locations", "SPREAD=location LOCATION=nbg1,fsn1 CONTROL_PLANE_REPLICAS=1", "spread",
			"more than one server"},
		{"spread over nothing known", "SPREAD=rack", "spread", "host or location"},
		{"no time", "NODES_TIMEOUT=0s", "nodesTimeout", "25m"},
		{"more time than there is", "NODES_TIMEOUT=2562047h", "nodesTimeout", "longer than 48h"},
		{"no deadline of the run", "BOOTSTRAP_TIMEOUT=0s", "", ""},
		{"a negative deadline of the run", "BOOTSTRAP_TIMEOUT=-1s", "bootstrapTimeout", "not a time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configOf(t, "guide")
			for _, kv := range strings.Fields(tt.set) {
				setVariable(t, &c, kv)
			}
			errs := c.Validate()
			if tt.field == "" {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != tt.field {
				t.Fatalf("got %v, want one error about %s", errs, tt.field)
			}
			if !strings.Contains(errs[0].Error(), tt.want) {
				t.Errorf("%q does not say %q", errs[0].Error(), tt.want)
			}
			if errs[0].Hint == "" {
				t.Errorf("%q does not say what to do", errs[0].Error())
			}
		})
	}
}

// TestVariables holds the table of variables against the fields of Config: each once, with one name.
func TestVariables(t *testing.T) {
	fields := map[string]bool{}
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		if !typ.Field(i).IsExported() {
			continue
		}
		json, yaml := typ.Field(i).Tag.Get("json"), typ.Field(i).Tag.Get("yaml")
		if json == "" || json != yaml {
			t.Errorf("field %s is %q in JSON and %q in YAML", typ.Field(i).Name, json, yaml)
		}
		fields[json] = true
	}
	defaults := Defaults()
	for _, v := range Variables() {
		if !fields[v.Field] {
			t.Errorf("%s names no field %s, or one that is named twice", v.Name, v.Field)
		}
		delete(fields, v.Field)
		if v.Doc == "" {
			t.Errorf("%s is not described", v.Name)
		}
		var c Config
		if err := v.Set(&c, v.Default); err != nil {
			t.Errorf("%s does not read its own default: %v", v.Name, err)
		}
		if got := v.Get(c); got != v.Get(defaults) {
			t.Errorf("%s: wrote %q, read %q", v.Name, v.Get(defaults), got)
		}
	}
	for f := range fields {
		t.Errorf("field %s has no variable", f)
	}
}

func TestSetRefusesWrongTypes(t *testing.T) {
	for _, v := range Variables() {
		c := Defaults()
		switch v.Pointer(&c).(type) {
		case *int, *Duration:
			err := v.Set(&c, "three")
			if err == nil || !strings.Contains(err.Error(), v.Name) || !strings.Contains(err.Error(), `"three"`) {
				t.Errorf("%s took the value: %v", v.Name, err)
			}
		}
	}
}

func TestDurationsAreText(t *testing.T) {
	data, err := json.Marshal(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"controlPlaneTimeout":"25m"`) {
		t.Errorf("no readable duration in %s", data)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, Defaults()) {
		t.Errorf("does not read back: %v", err)
	}
}

// setVariable applies KEY=VALUE as the command does.
func setVariable(t *testing.T, c *Config, kv string) {
	t.Helper()
	key, value, _ := strings.Cut(kv, "=")
	for _, v := range Variables() {
		if v.Name == key {
			if err := v.Set(c, value); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no variable %s", key)
}

func TestManagementProvider(t *testing.T) {
	for want, c := range map[string]Config{
		ManagementKind:     {},
		ManagementExisting: {ManagementKubeconfig: "/some/kubeconfig"},
		ManagementLocal:    {Management: ManagementLocal},
	} {
		if got := c.ManagementProvider(); got != want {
			t.Errorf("of %+v: %s, want %s", c, got, want)
		}
	}
}
