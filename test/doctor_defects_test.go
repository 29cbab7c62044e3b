package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// defects has at least one for each check.
func defects() []defect {
	set := func(name, value string) func(*testing.T, *doctorLab) {
		return func(_ *testing.T, c *doctorLab) { c.vars[name] = value }
	}
	edit := func(file, old, now string) func(*testing.T, *doctorLab) {
		return func(t *testing.T, c *doctorLab) { c.edit(t, file, old, now) }
	}
	fault := func(words ...string) func(*testing.T, *doctorLab) {
		return func(t *testing.T, c *doctorLab) { c.injectFault(t, words...) }
	}
	const cluster, cilium = "manifests/cluster.yaml", "bootstrap/cilium-values.yaml"
	return []defect{
		{"a management cluster too old", "versions", "Kubernetes v1.19.0", managedFrom("v1.19.0")},
		{"a route into the network", "address-ranges", "overlaps this machine's own routes", routed},
		{"no endpoint", "manifests", "controlPlaneEndpoint",
			edit(cluster, "  controlPlaneEndpoint:\n    host: \"${LOAD_BALANCER_IP:=}\"\n    port: 6443\n", "")},
		{"an algorithm that CAPH does not know", "schemas", "algorithm",
			edit(cluster, "algorithm: round_robin", "algorithm: random")},
		{"a field that Cluster API does not know", "schemas", "unknown field spec.maxUnhealthee",
			edit("manifests/machine-health-check.yaml", "maxUnhealthy:", "maxUnhealthee:")},
		{"a typing error in a patch", "patches", "hostDSN", edit(cluster, "hostDNS:\n", "hostDSN:\n")},
		{"a value that the chart cannot use", "chart-values", "cilium-values.yaml: chart cilium",
			values("cilium-values.yaml", "debug: verbose\n")},
		{"a capability that Talos forbids", "helm-values", "SYS_MODULE",
			edit(cilium, "      - CHOWN\n", "      - CHOWN\n      - SYS_MODULE\n")},
		{"an engine that does not answer", "management", "does not answer", set("ENGINE_SILENT", "1")},
		{"an engine with a full disk", "engine", "1.0 GiB free in /data", func(_ *testing.T, c *doctorLab) {
			c.engine = strings.Replace(wellEngine, `"graphRootUsed":10737418240`, `"graphRootUsed":106300440576`, 1)
		}},
		{"an engine with cgroup v1", "engine", "cgroup v1", func(_ *testing.T, c *doctorLab) {
			c.engine = strings.Replace(wellEngine, `"v2"`, `"v1"`, 1)
		}},
		{"a provider's version that there is not", "providers", "v1.1.99", set("CAPH_VERSION", "v1.1.99")},
		{"a chart's version that the registry has not", "charts", "talos-cloud-controller-manager 0.5.99",
			set("TALOS_CCM_VERSION", "0.5.99")},
		{"a chart's version that the repository has not", "charts", "cilium 1.19.99", set("CILIUM_VERSION", "1.19.99")},
		{"a token for reading alone", "token", "reading only", fault("error", "method=DELETE", "path=/placement_groups/0",
			"status=403", "code=token_readonly")},
		{"an unknown token", "token", "does not accept", set("HCLOUD_TOKEN", "not-a-token-of-this-lab")},
		{"a token of another project", "project", "another project", otherProject},
		{"the name is another's", "reservation", "0123456789abcdef", func(t *testing.T, c *doctorLab) {
			c.group(t, "slipway-k8s", map[string]string{"slipway-cluster": "k8s", "slipway-reserved-by": "0123456789abcdef"})
		}},
		{"out of stock", "server-type", "out of stock in nbg1", fault("out-of-stock", "serverType=cx33", "location=nbg1")},
		{"a server type that is withdrawn", "server-type", "withdrawn", set("SERVER_TYPE", "cx22")},
		{"more services than the load balancer has", "capacity", "6 services do not fit", edit(cluster, "    extraServices:\n",
			"    extraServices:"+extraServices(8001, 8002, 8003, 8004)+"\n")},
		{"two images", "image", "2 images", twoImages},
		{"nothing to create the image with", "image", "cannot be created", fault("out-of-stock", "location=nbg1")},
		{"a foreign placement group", "names", "placement group k8s-control-plane", func(t *testing.T, c *doctorLab) {
			c.group(t, "k8s-control-plane", nil)
		}},
		{"a foreign network of the name", "names", "network k8s", func(t *testing.T, c *doctorLab) {
			c.network(t, "k8s", "127.199.0.0/24")
		}},
		{"a foreign network over ours", "networks", "office (127.177.128.0/20)", func(t *testing.T, c *doctorLab) {
			c.network(t, "office", "127.177.128.0/20")
			for key, value := range within("127.177") {
				c.vars[key] = value
			}
		}},
		{"GitHub has had enough", "github-budget", "3 of 60 requests", githubLeft(3)},
	}
}

// values writes a file of Helm values.
func values(file, text string) func(*testing.T, *doctorLab) {
	return func(t *testing.T, c *doctorLab) {
		if err := os.MkdirAll(filepath.Join(c.folder, "bootstrap"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.folder, "bootstrap", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// extraServices are services of a load balancer beside that of the API, in the manifest's indentation.
func extraServices(ports ...int) (all string) {
	for _, port := range ports {
		all += fmt.Sprintf("\n      - {protocol: tcp, listenPort: %d, destinationPort: %d}", port, port)
	}
	return all
}

// edit copies a file of the repository into the working directory, changed.
func (c *doctorLab) edit(t *testing.T, file, old, now string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repositoryRoot(t), file))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), old, now, 1)
	if changed == string(data) {
		t.Fatalf("nothing was changed in %s", file)
	}
	path := filepath.Join(c.folder, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// injectFault injects a fault of the lab until the test ends.
func (c *doctorLab) injectFault(t *testing.T, words ...string) {
	t.Helper()
	out := c.inLab(t, append([]string{"lab", "fault", "add"}, words...)...)
	var id int
	if _, err := fmt.Sscanf(out, "fault %d:", &id); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { c.inLab(t, "lab", "fault", "remove", fmt.Sprint(id)) })
}

// inLab runs the command on the lab, whose state folder differs from the doctorLab's.
func (c *doctorLab) inLab(t *testing.T, args ...string) string {
	t.Helper()
	lab := *c.command
	lab.state = c.labState
	out, err := lab.exec(context.WithoutCancel(t.Context()), args...) // also at the end of the test
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// group creates a placement group, until the test ends.
func (c *doctorLab) group(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	made, _, err := c.PlacementGroup.Create(t.Context(),
		hcloud.PlacementGroupCreateOpts{Name: name, Labels: labels, Type: hcloud.PlacementGroupTypeSpread})
	if err != nil {
		t.Fatal(err)
	}
	atEnd(t, func(ctx context.Context) error {
		_, err := c.PlacementGroup.Delete(ctx, made.PlacementGroup)
		return err
	})
}

// atEnd runs a command at the end of the test.
func atEnd(t *testing.T, undo func(context.Context) error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := undo(ctx); err != nil {
			t.Error(err)
		}
	})
}

// network creates a network, until the test ends.
func (c *doctorLab) network(t *testing.T, name, prefix string) {
	t.Helper()
	_, ipRange, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: ipRange})
	if err != nil {
		t.Fatal(err)
	}
	atEnd(t, func(ctx context.Context) error { _, err := c.Network.Delete(ctx, made); return err })
}

// twoImages creates two snapshots with the label of the servers' image.
func twoImages(t *testing.T, c *doctorLab) {
	lab := *c.command
	lab.state = c.labState
	for _, name := range []string{"talos-amd64-v1.13.9", "another"} {
		if err := lab.labCall(http.MethodPut, "/v1/images/"+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	images := must(c.Image.AllWithOpts(t.Context(),
		hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}}))(t)
	for _, image := range images {
		if image.Labels["caph-image-name"] == "another" {
			image.Labels["caph-image-name"] = "talos-amd64-v1.13.9"
			if _, _, err := c.Image.Update(t.Context(), image, hcloud.ImageUpdateOpts{Labels: image.Labels}); err != nil {
				t.Fatal(err)
			}
		}
		atEnd(t, func(ctx context.Context) error { _, err := c.Image.Delete(ctx, image); return err })
	}
}

// otherProject reserves the name in the project, and then deletes the reservation: the same happens when the token is
// that of another project.
func otherProject(t *testing.T, c *doctorLab) {
	if out, err := c.withVars(t.Context(), "reserve").CombinedOutput(); err != nil {
		t.Fatalf("reserve: %v\n%s", err, out)
	}
	if f := c.examine(t)["project"]; f.Verdict != "ok" {
		t.Fatalf("with the reservation in it the project is %+v", f)
	}
	g, _, err := c.PlacementGroup.GetByName(t.Context(), "slipway-k8s")
	if err != nil || g == nil {
		t.Fatalf("the reservation: %v, %v", g, err)
	}
	if _, err := c.PlacementGroup.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// managedFrom configures the API server of that Kubernetes as the management cluster.
func managedFrom(version string) func(*testing.T, *doctorLab) {
	return func(t *testing.T, c *doctorLab) {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"gitVersion": %q}`, version)
				return
			}
			fmt.Fprint(w, "ok")
		}))
		t.Cleanup(api.Close)
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(
			"apiVersion: v1\nkind: Config\nclusters: [{name: x, cluster: {server: %q}}]\ncontexts: [{name: x, context: "+
				"{cluster: x, user: x}}]\n"+
				"current-context: x\nusers: [{name: x, user: {}}]\n", api.URL)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.vars["MANAGEMENT_KUBECONFIG"] = path
	}
}

// routed sets the network to a range of which this machine has a route.
func routed(t *testing.T, c *doctorLab) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsPrivate() {
			b := p.Addr().As4()
			for key, value := range within(fmt.Sprintf("%d.%d", b[0], b[1])) {
				c.vars[key] = value
			}
			return
		}
	}
	t.Skip("this machine has no private address, and a network of Hetzner is private; internal/operation/doctor has a test of its own")
}

// githubLeft simulates GitHub's answer without a request that leaves the machine: proxy and certificate authority of
// the environment are the test's.
func githubLeft(left int) func(*testing.T, *doctorLab) {
	return func(t *testing.T, c *doctorLab) {
		if runtime.GOOS == "darwin" {
			t.Skip("Go asks macOS itself which authorities to trust")
		}
		remaining := 55
		github := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/rate_limit" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintf(w, `{"rate": {"limit": 60, "remaining": %d}}`, remaining)
		}))
		certificate, authority := certificateOf(t, "api.github.com")
		github.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		github.StartTLS()
		t.Cleanup(github.Close)
		c.vars["HTTPS_PROXY"], c.vars["SSL_CERT_FILE"] = tunnel(t, github.Listener.Addr().String()), authority
		delete(c.vars, "PROVIDER_REPOSITORY")
		f := c.examine(t)["github-budget"]
		if f.Verdict != "ok" || !strings.Contains(f.Reason, "55 of 60") ||
			!strings.Contains(f.Reason, "without GITHUB_TOKEN") {
			t.Errorf("with 55 requests left: %+v", f)
		}
		remaining = left
	}
}

// tunnel is a proxy that connects every CONNECT to one address.
func tunnel(t *testing.T, to string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", to)
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		defer there.Close()
		// First of all: what the client sends after the answer must not be read by the server.
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(there, buffered); _ = there.(*net.TCPConn).CloseWrite() })
		both.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
		both.Wait()
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// certificateOf creates a certificate for a host, and a file with it as the trusted authority.
func certificateOf(t *testing.T, host string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// fewRequests leaves the project few requests: a bootstrap is slow with them, and fails where it has no time.
func fewRequests(lab *command) func(*testing.T) {
	return func(t *testing.T) {
		c := newDoctorLab(t, lab)
		c.injectFault(t, "low-budget", "remaining=200")
		f := c.examine(t)["hetzner-budget"]
		var left int // 20 come back each second: on a busy machine, more than a tenth of all may be back
		_, err := fmt.Sscanf(f.Reason, "%d of 3600 requests", &left)
		if err != nil || f.Verdict != "ok" ||
			strings.Contains(f.Reason, "slower now, its requests wait until 450 are left") != (left < 360) {
			t.Errorf("with 200 requests left: %v, %+v", err, f)
		}
		c.injectFault(t, "low-budget", "remaining=200", "limit=360") // two come back each second
		c.vars["BOOTSTRAP_TIMEOUT"] = "2s"
		if f := c.examine(t)["hetzner-budget"]; f.Verdict != "failed" || f.WayOut == "" ||
			!strings.Contains(f.Reason, "a bootstrap may need 300 within 2.0s") {
			t.Errorf("with 200 requests left and two seconds: %+v", f)
		}
	}
}

// refusedByRateLimit has every request of the command refused with 429: the step ends at its deadline, and says why.
func refusedByRateLimit(lab *command) func(*testing.T) {
	return func(t *testing.T) {
		c := newDoctorLab(t, lab)
		preflight := func() (string, error) {
			out, err := c.withVars(t.Context(), "preflight", "PREFLIGHT_TIMEOUT=3s").CombinedOutput()
			return string(out), err
		}
		t.Run("endlessly", func(t *testing.T) {
			c.injectFault(t, "rate-limit", "actor=slipway/")
			began := time.Now()
			out, err := preflight()
			var exit *exec.ExitError
			if took := time.Since(began); !errors.As(err, &exit) || exit.ExitCode() != 1 || took < 3*time.Second ||
				took > time.Minute {
				t.Errorf("after %s: %v", took, err)
			}
			for _, says := range []string{"for the rate limit of the Hetzner Cloud API, which refused it", "with 429", "not done within its deadline of 3s", "the same command resumes"} {
				if !strings.Contains(out, says) {
					t.Errorf("it does not say %q:\n%s", says, out)
				}
			}
		})
		if out, err := preflight(); err != nil {
			t.Errorf("without the fault: %v\n%s", err, out)
		}
	}
}
