package talos

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func TestMachineConfigOfTheGuide(t *testing.T) {
	f := newFixture(t)
	c := f.config(machine.TypeControlPlane)
	private, public := f.private(1), f.public(1)

	if got := c.hostname("k8s-cp-abcde"); got != "k8s-cp-abcde" {
		t.Errorf("hostname %q: the cloud's metadata is above an automatic one", got)
	}
	for name, pick := range map[string]func([]netip.Addr) (netip.Addr, error){"node IP": c.nodeIP, "etcd IP": c.etcdIP} {
		if got, err := pick(addrs(public, private)); err != nil || got.String() != private {
			t.Errorf("%s %v, %v; want %s", name, got, err, private)
		}
		if _, err := pick(addrs(public)); err == nil || !strings.Contains(err.Error(), "ubnets") {
			t.Errorf("%s of a server outside of the subnets: %v", name, err)
		}
	}
	labels := c.nodeLabels()
	if _, ok := labels["node-role.kubernetes.io/control-plane"]; !ok || len(labels) != 1 {
		t.Errorf("labels %v: want the role alone, the label that excludes from load balancers is deleted", labels)
	}
	if taints := c.nodeTaints(); len(taints) != 0 {
		t.Errorf("taints %v", taints)
	}
	if v, err := c.kubeletVersion(); err != nil || v != "v"+kubernetesVersion {
		t.Errorf("kubelet version %q, %v", v, err)
	}
	if !c.cloudProviderExternal() || !c.rotateServerCertificates() {
		t.Error("cloud-provider=external and rotate-server-certificates are not seen")
	}
	apiSANs, err := c.apiServerSANs("node-1", addrs(private, public))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{private, public, f.endpoint, f.address("96.1"), "node-1",
		"kubernetes.default.svc.cluster.local"} {
		if !slices.Contains(apiSANs, want) {
			t.Errorf("the kube-apiserver's names %v miss %s", apiSANs, want)
		}
	}
	for _, want := range []string{private, public, f.endpoint, "node-1"} {
		if got := c.apidSANs("node-1", addrs(private, public)); !slices.Contains(got, want) {
			t.Errorf("the machine API's names %v miss %s", got, want)
		}
	}
}

func TestMachineConfigWithoutTheGuide(t *testing.T) {
	f := newFixture(t)
	c := f.config(machine.TypeControlPlane,
		"cluster: {allowSchedulingOnControlPlanes: false}\nmachine: {nodeTaints: {dedicated: db:NoExecute}}",
		"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: Chosen.example.com\nauto: off")
	if got := c.hostname("server"); got != "chosen" {
		t.Errorf("hostname %q, want what the configuration spells out", got)
	}
	want := []taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"},
		{Key: "dedicated", Value: "db", Effect: "NoExecute"}}
	if got := c.nodeTaints(); !slices.Equal(got, want) {
		t.Errorf("taints %v, want %v", got, want)
	}
}

func TestAPIServerArgs(t *testing.T) {
	f := newFixture(t)
	c := f.config(machine.TypeControlPlane,
		`cluster: {apiServer: {extraArgs: {v: "1", bind-address: 0.0.0.0, etcd-servers: elsewhere}}}`)
	args, dropped, err := c.apiServerArgs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(args, "--v=1") {
		t.Errorf("args %v miss an extra one", args)
	}
	for _, never := range []string{"--oidc-", "--bind-address", "--etcd-servers"} {
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, never) }) {
			t.Errorf("args %v have %s…", args, never)
		}
	}
	if !strings.Contains(dropped, "auth.example.com") {
		t.Errorf("dropped %q: want why the oidc flags are left out", dropped)
	}

	c = f.config(machine.TypeControlPlane,
		`cluster: {apiServer: {extraArgs: {oidc-issuer-url: "https://127.0.0.1:5556"}}}`)
	if args, dropped, err = c.apiServerArgs(t.TempDir()); err != nil || dropped != "" ||
		!slices.Contains(args, "--oidc-issuer-url=https://127.0.0.1:5556") {
		t.Errorf("an issuer within reach: %v, dropped %q, %v", args, dropped, err)
	}
}

func TestBrokenUserData(t *testing.T) {
	f := newFixture(t)
	for name, userData := range map[string]string{
		"empty":          " \n",
		"no YAML":        "{",
		"something else": "#cloud-config\npackages: [nginx]\n",
		"an unknown field": strings.Replace(f.userData(machine.TypeControlPlane), "machine:", "machine:\n    colour: blue",
			1),
		"not valid": f.userData(machine.TypeControlPlane,
			"cluster: {network: {dnsDomain: \"-\"}, controlPlane: {endpoint: \"https://\"}}"),
	} {
		if _, err := parseConfig(userData); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]string{
		"talos-amd64-v1.12.2": "v1.12.2", "Talos v1.13.0-alpha.1 amd64": "v1.13.0-alpha.1", "talos": "v9.9.9", "": "v9.9.9",
	} {
		if got := versionOf(image, "v9.9.9"); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

func TestImageTag(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/siderolabs/kubelet:v1.32.2": "v1.32.2", "host:5000/kubelet:v1@sha256:abc": "v1", "host:5000/kubelet": "",
		"kubelet": "",
	} {
		if got, err := imageTag(image); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", image, got, err)
		}
	}
}

// A worker's node has the taints that its kubelet registers with: the API server lets it have no others.
func TestTaintsOfAWorker(t *testing.T) {
	c := newFixture(t).config(machine.TypeWorker, "machine: {nodeTaints: {late: db:NoExecute}, kubelet: {extraConfig: "+
		"{registerWithTaints: [{key: dedicated, value: db, effect: NoSchedule}]}}}")
	if got, want := c.nodeTaints(), []taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}; !slices.Equal(got, want) {
		t.Errorf("taints %v, want %v", got, want)
	}
}
