package plane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

func TestSingle(t *testing.T) {
	var cfg plane.SingleConfig
	begin := time.Now()
	super := planetest.Supervisor(t)
	p, admin := planetest.Start(t, func(c *plane.SingleConfig) {
		c.AuditLog = filepath.Join(c.Dir, "audit.jsonl")
		cfg = *c
	})
	t.Logf("apiserver ready after %s", time.Since(begin).Round(time.Millisecond))
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("all ready after %s", time.Since(begin).Round(time.Millisecond))
	admin.UserAgent = "plane-test/1"
	cs := client(t, admin)

	// The controller-manager works: it creates the namespace's service account, and the kube-apiserver signs tokens for
	// it.
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), namespace("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a token of the default service account", func() error {
		_, err := cs.CoreV1().ServiceAccounts("one").CreateToken(t.Context(), "default", &authv1.TokenRequest{},
			metav1.CreateOptions{})
		return err
	})
	uid := systemUID(t, cs)
	checkAudit(t, cfg.AuditLog)
	kubeconfig, err := p.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	// A kube-apiserver that ends is restarted.
	if err := p.RestartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Stopped and started again it is the same cluster.
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("tcp", net.JoinHostPort(cfg.Address, plane.APIPort)); err != nil {
		t.Errorf("after the stop a process still listens: %v", err)
	} else {
		l.Close()
	}
	p, err = plane.StartSingle(t.Context(), super, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := systemUID(t, cs); got != uid {
		t.Errorf("kube-system is another one: %s, was %s", got, uid)
	}
	if _, err := cs.CoreV1().Namespaces().Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace is lost: %v", err)
	}
	if again, err := p.AdminKubeconfig(); err != nil || !bytes.Equal(again, kubeconfig) {
		t.Errorf("another kubeconfig after the restart (%v)", err)
	}
}

// checkAudit requires every write of the test's client in the log, and no read of any client.
func checkAudit(t *testing.T, path string) {
	t.Helper()
	await(t, "the write in the audit log", func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(`"userAgent":"plane-test/1"`)) {
			return os.ErrNotExist
		}
		return nil
	})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for line := range strings.Lines(string(b)) {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }
			ObjectRef       struct{ Resource, Name string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		switch e.Verb {
		case "get", "list", "watch":
			t.Errorf("a read is in the log: %s", line)
		}
		if e.ObjectRef.Resource == "leases" || e.ObjectRef.Resource == "events" {
			t.Errorf("noise is in the log: %s", line)
		}
		if e.UserAgent == "plane-test/1" && e.User.Username == "kubernetes-admin" {
			own = append(own, e.Verb+" "+e.ObjectRef.Resource+" "+e.ObjectRef.Name)
		}
	}
	if len(own) == 0 || own[0] != "create namespaces one" {
		t.Errorf("the test's writes: %v, want the namespace's creation first", own)
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	super := planetest.Supervisor(t)
	dir, address := t.TempDir(), planetest.Address(t)
	l, err := net.Listen("tcp", net.JoinHostPort(address, plane.APIPort))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = plane.StartSingle(t.Context(), super,
		plane.SingleConfig{Cluster: "test", Bin: planetest.Bin(t), Dir: dir, LogDir: dir,
			Address: address, ServiceCIDR: "127.129.96.0/20"})
	if err == nil {
		t.Fatal("started on a port that is taken")
	}
	for _, want := range []string{"kube-apiserver", address, "address already in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if left := super.List(); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func systemUID(t *testing.T, cs *kubernetes.Clientset) string {
	t.Helper()
	ns, err := cs.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}

// await polls until ask succeeds, for at most 30 seconds.
func await(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
