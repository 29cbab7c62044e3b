//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/environment"
	"github.com/slipway-k8s/slipway/lab/management"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// asCommand runs the test binary as the command.
const asCommand = "SLIPWAY_LAB_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// daemon is a lab that was started in the background.
type daemon struct {
	controlClient
	cmd *exec.Cmd
	dir string
}

func serveLab(t *testing.T, dir string, flags ...string) *daemon {
	t.Helper()
	args := append([]string{"serve", "--dir", dir, "--bin", planetest.Bin(t)}, flags...)
	d := &daemon{controlClient: newControlClient(dir), dir: dir, cmd: command(t, args...)}
	var log bytes.Buffer
	d.cmd.Stdout, d.cmd.Stderr = &log, &log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // mostly it has ended
		_ = d.cmd.Wait()
		if t.Failed() {
			t.Logf("the lab's log:\n%s", log.String())
		}
	})
	await(t, "answer of the lab", func() error {
		_, err := d.Status(t.Context())
		return err
	})
	return d
}

// TestLab creates a management cluster, uses it from the host, keeps it through the lab's kill and orderly end, and
// deletes it.
func TestLab(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	d := serveLab(t, dir)
	begin := time.Now()
	m, err := d.EnsureManagement(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the management cluster was ready after %s", time.Since(begin).Round(time.Millisecond))
	cs := client(t, m)
	ready, err := cs.CoreV1().Nodes().Get(t.Context(), "m-control-plane", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ready.Status.NodeInfo.KubeletVersion == "" || len(ready.Spec.Taints) != 0 {
		t.Errorf("Node: version %q, taints %v", ready.Status.NodeInfo.KubeletVersion, ready.Spec.Taints)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, err := d.EnsureManagement(t.Context(), "m"); err != nil || again != m {
		t.Errorf("asked again, the cluster is another one (%v)", err)
	}
	if _, err := d.Management(t.Context(), "other"); err == nil ||
		!strings.Contains(err.Error(), "no such management cluster") {
		t.Errorf("a cluster that is not there: %v", err)
	}
	if _, err := d.EnsureManagement(t.Context(), "No_Name"); err == nil {
		t.Error("an impossible name was accepted")
	}
	if out, err := command(t, "serve", "--dir", dir, "--bin", "/").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "already") {
		t.Errorf("a second lab in the folder: %v, %s", err, out)
	}
	checkModes(t, dir)
	checkSecrets(t, d)
	server := createServer(t, d)

	// Killed, the lab leaves nothing; started again, it is the same.
	s := statusOf(t, d)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	checkGone(t, s)
	d = serveLab(t, dir)
	again, err := d.EnsureManagement(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	if again != m {
		t.Error("after a restart the cluster has another kubeconfig")
	}
	if _, err := cs.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	checkServer(t, d, server)

	// Told to, it ends within its deadline.
	s = statusOf(t, d)
	if err := d.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the lab's end: %v", err)
	}
	checkGone(t, s)
	d = serveLab(t, dir)
	if _, err := d.Management(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteManagement(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, d); len(s.Clusters) != 0 || len(s.Processes) != 0 {
		t.Errorf("after its removal: clusters %v, processes %v", s.Clusters, s.Processes)
	}
	if m, err := d.EnsureManagement(t.Context(), "m"); err != nil {
		t.Error(err)
	} else if _, err := client(t, m).CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Error("a new cluster holds what the removed one held")
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the lab's end by a signal: %v", err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"sing"}, {"serve"}, {"serve", "--dir", "x"},
		{"serve", "--dir", "x", "--bin", "y", "--latency", "slow"},
		{"serve", "--dir", "x", "--bin", "y", "z"}, {"serve", "--dir", "x", "--bin", "y", "--until-gone", "-1"}, {"manage"}} {
		out, err := command(t, args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !bytes.HasPrefix(out, []byte("lab: ")) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestEndsWithAProcess has a lab that serves a process end with it, however that ends.
func TestEndsWithAProcess(t *testing.T) {
	served := exec.Command("sleep", "600")
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	d := serveLab(t, filepath.Join(t.TempDir(), "lab"), "--until-gone", strconv.Itoa(served.Process.Pid))
	info, err := d.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = served.Wait()
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it outlives the process that it serves")
	}
	if _, err := net.DialTimeout("tcp", strings.TrimSuffix(strings.TrimPrefix(info.HetznerEndpoint, "http://"), "/v1"),
		time.Second); err == nil {
		t.Error("it leaves a port behind")
	}
	out, err := command(t, "serve", "--dir", d.dir, "--bin", planetest.Bin(t), "--until-gone",
		strconv.Itoa(served.Process.Pid)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "watch process") {
		t.Errorf("of a process that has ended: %v, %s", err, out)
	}
}

func statusOf(t *testing.T, d *daemon) environment.Status {
	t.Helper()
	s, err := d.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, m management.Description) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(m.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	cs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// createServer makes a server of the simulated cloud from the host, through the lab's HTTPS proxy as the real API's
// host, and waits until its Talos has seen that its user data is no machine configuration.
func createServer(t *testing.T, d *daemon) environment.Server {
	t.Helper()
	if err := d.EnsureImage(t.Context(), "talos-test"); err != nil {
		t.Fatal(err)
	}
	info, err := d.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hc := hcloud.NewClient(hcloud.WithToken(info.Token),
		hcloud.WithHTTPClient(&http.Client{Transport: throughProxy(t, info)}))
	images, err := hc.Image.AllWithOpts(t.Context(),
		hcloud.ImageListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "caph-image-name==talos-test,os=talos"}})
	if err != nil || len(images) != len([]string{"x86", "arm"}) {
		t.Fatalf("snapshots %v, %v", images, err)
	}
	_, _, err = hc.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "test", ServerType: &hcloud.ServerType{Name: "cx33"}, Image: images[0],
		Location: &hcloud.Location{Name: "nbg1"}, UserData: "planted: user data",
	})
	if err != nil {
		t.Fatal(err)
	}
	return awaitServer(t, d)
}

func awaitServer(t *testing.T, d *daemon) (server environment.Server) {
	t.Helper()
	await(t, "server in maintenance mode", func() error {
		s := statusOf(t, d)
		if len(s.Servers) != 1 || s.Servers[0].Status != "running" || !strings.HasPrefix(s.Servers[0].Talos, "maintenance") {
			return fmt.Errorf("servers %v", s.Servers)
		}
		server = s.Servers[0]
		return nil
	})
	return server
}

// checkServer checks that the earlier server exists again.
func checkServer(t *testing.T, d *daemon, before environment.Server) {
	t.Helper()
	if after := awaitServer(t, d); after.ID != before.ID || after.PublicIPv4 != before.PublicIPv4 {
		t.Errorf("after a restart the server is %v, was %v", after, before)
	}
	log, err := os.ReadFile(filepath.Join(d.dir, "hetzner-requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(log, []byte(`"method":"POST","path":"/v1/servers"`)) || bytes.Contains(log, []byte("planted")) {
		t.Errorf("request log: %s", log)
	}
}

// throughProxy goes the way of an unmodified program: HTTPS_PROXY and SSL_CERT_FILE.
func throughProxy(t *testing.T, info environment.Info) *http.Transport {
	t.Helper()
	proxy, err := url.Parse(info.Proxy)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(info.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool}}
}

// checkModes checks that only the user can read what the lab wrote.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // programs write and rename
		}
		if err == nil && info.Mode().Perm()&0o077 != 0 && info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s: mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkSecrets checks that no process's arguments contain the token.
func checkSecrets(t *testing.T, d *daemon) {
	t.Helper()
	info, err := d.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Token) != 64 {
		t.Errorf("token of %d characters", len(info.Token))
	}
	for _, p := range statusOf(t, d).Processes {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cmdline"))
		if err != nil {
			t.Errorf("the status's process id %d of %s: %v", p.PID, p.Name, err)
		}
		if bytes.Contains(b, []byte(info.Token)) {
			t.Errorf("%s has the token in its arguments", p.Name)
		}
	}
}

// checkGone checks that none of a status's processes and listeners is left.
func checkGone(t *testing.T, s environment.Status) {
	t.Helper()
	if len(s.Processes) < 4 || len(s.Listeners) < 3 {
		t.Errorf("the status before the end: processes %v, listeners %v", s.Processes, s.Listeners)
	}
	for _, p := range s.Processes {
		// The kernel ends the processes of a killed lab, but not immediately.
		await(t, "end of process "+p.Name, func() error {
			if err := syscall.Kill(p.PID, 0); err != syscall.ESRCH {
				return fmt.Errorf("process %d: %v", p.PID, err)
			}
			return nil
		})
	}
	for _, l := range s.Listeners {
		if c, err := net.DialTimeout("tcp", l, time.Second); err == nil {
			c.Close()
			t.Errorf("%s still listens", l)
		}
	}
}

// await polls until ask succeeds, for at most 90 seconds.
func await(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
