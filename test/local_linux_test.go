package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/config"
)

// TestLocalManagement bootstraps a cluster as at Hetzner, without --lab, with a management cluster made of processes
// whose programs come out of images. Hetzner is the one of a lab, which the command and the management cluster reach from
// outside of the lab's network as api.hetzner.cloud, through a proxy. Everything is killed on the way.
func TestLocalManagement(t *testing.T) {
	t.Parallel()
	l := newCommand(t) // has the lab
	l.lab("up")
	c := atHetznerOf(t, l)
	if is := c.processes(t); len(is) > 0 {
		t.Fatalf("before the first run: %v", is)
	}

	// The machine fails while the control plane comes up.
	o := c.run(func(e event, p *os.Process) {
		if e.Step == "wait-cp" && e.Kind == "step-progress" {
			_ = p.Kill() // it may have been killed already
		}
	}, "all")
	if o.exit != -1 {
		t.Fatalf("it was not killed: exit %d\n%s", o.exit, o.end())
	}
	left := c.processes(t)
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "cluster-api", "manager"} {
		if !slices.Contains(slices.Collect(maps.Values(left)), program) {
			t.Errorf("without the command these run, and not %s: %v", program, left)
		}
	}
	c.listensOnLoopback(t, left)
	for pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL) // its parent's end may have ended it
	}
	c.nothingIsLeft(t)
	if out, err := c.exec(t.Context(), "status"); !strings.Contains(out, "wait-cp") {
		t.Errorf("status of a management cluster that does not run: %v\n%s", err, out)
	}
	if is := c.processes(t); len(is) > 0 {
		t.Errorf("status started %v", is)
	}

	o = c.run(nil, "all")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	// capi-init runs again where the controllers are not available yet: it waits for them, and installs nothing.
	if ran := o.steps("step-done"); slices.Contains(ran, "secret") || !slices.Contains(ran, "clean") {
		t.Errorf("after the failure these steps ran: %v", ran)
	}
	c.nothingIsLeft(t)
	if _, err := os.Stat(filepath.Join(c.state, "management")); !os.IsNotExist(err) {
		t.Errorf("the data of the management cluster: %v", err)
	}
	nodes := must(workload(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	if len(nodes.Items) != 1 {
		t.Errorf("%d nodes", len(nodes.Items))
	}
	if servers := l.project().clusterServers(t); len(servers) != 1 {
		t.Errorf("%d servers", len(servers))
	}
	// The cluster manages itself: nothing of this machine is needed to delete it.
	if o := c.run(nil, "destroy", "--yes"); o.exit != 0 {
		t.Errorf("destroy: exit %d\n%s", o.exit, o.end())
	}
	c.nothingIsLeft(t)
}

// atHetznerOf is a command with a state folder of its own whose Hetzner is that of a lab, and whose images are served by
// a registry of the test: the programs that were built from source, and stand-ins for CAPH and cert-manager.
func atHetznerOf(t *testing.T, l *command) *command {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir()))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	versions := pushAll(t, host, sourceSet(t, l))
	var info struct {
		Proxy, CAFile, Token, ProviderRepository, CertManagerURL, CertManagerVersion string

		NetworkCIDR, ControlPlaneCIDR, PodCIDR, ServiceCIDR string

		ChartRepositories, Versions map[string]string
	}
	l.labGet("/v1/info", &info)
	for image, entrypoint := range map[string][]string{
		"syself/caph:" + config.Defaults().CAPHVersion:                {"/manager", "caph", "--follow=v1.1.8"},
		"jetstack/cert-manager-controller:" + info.CertManagerVersion: {"/manager", "cert-manager"},
		"jetstack/cert-manager-webhook:" + info.CertManagerVersion:    {"/manager", "cert-manager"},
		"jetstack/cert-manager-cainjector:" + info.CertManagerVersion: {"/manager", "cert-manager"},
	} {
		ref, err := name.ParseReference(host + "/" + image)
		if err != nil {
			t.Fatal(err)
		}
		p := inImage{file: "lab", path: "manager", entrypoint: entrypoint}
		if err := remote.Write(ref, p.make(t, filepath.Join(l.state, "lab", "bin"))); err != nil {
			t.Fatal(err)
		}
	}

	home := t.TempDir()
	registries := filepath.Join(home, "registry.yaml")
	if err := os.WriteFile(registries, fmt.Appendf(nil, "registries: {\"*\": [{url: %q}]}", server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	c := *l
	c.state = filepath.Join(home, "state")
	c.env = []string{"CONTROL_PLANE_REPLICAS=1"}
	for variable, value := range map[string]string{
		"MANAGEMENT": config.ManagementLocal, "REGISTRY_CONFIG": registries,
		"XDG_CACHE_HOME": filepath.Join(home, "cache"), "XDG_CONFIG_HOME": filepath.Join(home, "config"),
		"GOCACHE": goCache(t), "HCLOUD_TOKEN": info.Token, "HTTPS_PROXY": info.Proxy, "SSL_CERT_FILE": info.CAFile,
		"NETWORK_CIDR": info.NetworkCIDR, "CONTROL_PLANE_CIDR": info.ControlPlaneCIDR,
		"POD_CIDR": info.PodCIDR, "SERVICE_CIDR": info.ServiceCIDR,
		"PROVIDER_REPOSITORY": info.ProviderRepository, "CERT_MANAGER_URL": info.CertManagerURL,
		"CERT_MANAGER_VERSION": info.CertManagerVersion,
		"KUBERNETES_VERSION":   versions["k8s.io/kubernetes"], "CAPI_VERSION": versions["sigs.k8s.io/cluster-api"],
		"CABPT_VERSION": info.Versions["CABPT"], "CACPPT_VERSION": info.Versions["CACPPT"],
		"CILIUM_REPOSITORY":     info.ChartRepositories["cilium"],
		"HCLOUD_CCM_REPOSITORY": info.ChartRepositories["hcloud-cloud-controller-manager"],
		"TALOS_CCM_REPOSITORY":  info.ChartRepositories["talos-cloud-controller-manager"],
	} {
		c.env = append(c.env, variable+"="+value)
	}
	t.Cleanup(func() {
		for pid := range c.processes(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	})
	return &c
}

// processes are the names of the programs that run for the management cluster in the state folder, by process id.
func (c *command) processes(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		arguments, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		where, _ := os.Readlink(filepath.Join(folder, "cwd"))
		program, err := os.Readlink(filepath.Join(folder, "exe"))
		within := filepath.Join(c.state, "management")
		if err != nil || !strings.HasPrefix(where, within) && !bytes.Contains(arguments, []byte(within)) {
			continue // it has ended, or is of another program
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			t.Fatal(err)
		}
		if found[pid] = filepath.Base(program); found[pid] == "server" {
			found[pid] = "etcd"
		}
	}
	return found
}

func (c *command) nothingIsLeft(t *testing.T) {
	t.Helper()
	eventually(t, "the end of the management cluster's processes", 20*time.Second, func(context.Context) string {
		if left := c.processes(t); len(left) > 0 {
			return fmt.Sprintf("these run: %v", left)
		}
		return ""
	})
}

// listensOnLoopback looks at what the processes listen on in the network of this machine: the API of the management
// cluster and the address that reserves its part of 127.0.0.0/8, and nothing on another address.
func (c *command) listensOnLoopback(t *testing.T, processes map[int]string) {
	t.Helper()
	listening := map[string]netip.AddrPort{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(bytes.NewReader(data))
		for scanner.Scan() {
			const address, state, inode, listen = 1, 3, 9, "0A"
			if fields := strings.Fields(scanner.Text()); len(fields) > inode && fields[state] == listen {
				listening["socket:["+fields[inode]+"]"] = addressOf(t, fields[address])
			}
		}
	}
	var ports []string
	for pid := range processes {
		sockets, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // it may have ended
		for _, socket := range sockets {
			target, err := os.Readlink(socket)
			at, listens := listening[target]
			if err != nil || !listens {
				continue
			}
			if !at.Addr().IsLoopback() {
				t.Errorf("%s (process %d) listens on %s", processes[pid], pid, at)
			}
			ports = append(ports, strconv.Itoa(int(at.Port())))
		}
	}
	slices.Sort(ports)
	if ports = slices.Compact(ports); !slices.Equal(ports, []string{"6444", "8080"}) {
		t.Errorf("on this machine's loopback it listens on ports %v", ports)
	}
}

// addressOf reads an address of /proc/net/tcp: the bytes of each 32 bit word are in the machine's order.
func addressOf(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	words, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil {
		t.Fatalf("%q is no address: %v, %v", text, err, portErr)
	}
	for i := 0; i+4 <= len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	address, _ := netip.AddrFromSlice(words)
	return netip.AddrPortFrom(address.Unmap(), uint16(number))
}
