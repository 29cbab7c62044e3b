// Package planetest starts real control planes for tests.
package planetest

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// The versions of the default set (config/versions.yaml), which `lab build` makes.
const (
	kubernetesMinor = "v1.35"
	coreMinor       = "v1.13"
)

// Bin returns a folder of the lab's programs: SLIPWAY_LAB_BIN, or links to those of the default version set that
// `lab build` made in the user's cache. Where they are not there the test is skipped, and fails on a machine that claims
// to be CI.
func Bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SLIPWAY_LAB_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	for _, from := range []string{built(plane.ProgramEtcd, "", ""), built("kube-apiserver", "k8s.io/kubernetes", kubernetesMinor),
		built("cluster-api", "sigs.k8s.io/cluster-api", coreMinor)} {
		if from == "" {
			const missing = "the lab's programs are not built: run `go run ./cmd/bootstrap lab build`, or set " +
				"SLIPWAY_LAB_BIN to their folder"
			if os.Getenv("CI") != "" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
		link(t, from, dir)
	}
	return dir
}

// Core returns the folder of the program of Cluster API's core of a minor ("v1.13") that `lab build` made. Where there
// is none the test is skipped.
func Core(t testing.TB, minor string) string {
	t.Helper()
	folder := built("cluster-api", "sigs.k8s.io/cluster-api", minor)
	if folder == "" {
		t.Skipf("Cluster API %s is not built: run `go run ./cmd/bootstrap lab build CAPI_VERSION=%s.0`", minor, minor)
	}
	return folder
}

// built is the folder of the user's cache with the youngest program that was built of a minor version of a module; of
// any module and version where module is empty. It is empty where there is none.
func built(program, module, minor string) (folder string) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	var youngest time.Time
	programs, _ := filepath.Glob(filepath.Join(cache, "slipway", "lab", "*", "bin", program)) // the only error is a bad pattern
	for _, path := range programs {
		is, err := buildinfo.ReadFile(path)
		if err != nil || module != "" && !slices.ContainsFunc(append(is.Deps, &is.Main), func(m *debug.Module) bool {
			return m.Path == module && strings.HasPrefix(m.Version, minor+".")
		}) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.ModTime().After(youngest) {
			folder, youngest = filepath.Dir(path), info.ModTime()
		}
	}
	return folder
}

// link links what a folder has into another one, in place of what that has of the same name. Folders are made anew.
func link(t testing.TB, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.Name() == "modules" || filepath.Base(from) == "modules" { // of providers, each below its host
			if err := os.MkdirAll(target, 0o755); err != nil {
				t.Fatal(err)
			}
			link(t, source, target)
			continue
		}
		if err := os.RemoveAll(target); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(source, target); err != nil {
			t.Fatal(err)
		}
	}
}

// Address returns an address of 127.0.0.0/8 on which no control plane listens, outside of what labs use.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		a := fmt.Sprintf("127.%d.%d.%d", 130+rand.IntN(120), rand.IntN(256), 1+rand.IntN(254))
		l, err := net.Listen("tcp", net.JoinHostPort(a, plane.APIPort))
		if err == nil {
			l.Close()
			return a
		}
	}
	t.Fatal("no free address in 127.130.0.0 to 127.249.255.255")
	return ""
}

// Supervisor returns a supervisor whose processes end with the test.
func Supervisor(t testing.TB) *proc.Supervisor {
	t.Helper()
	s := proc.New()
	t.Cleanup(func() {
		if err := s.StopAll(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a control plane with its own etcd that ends with the test, and returns it with its administrator's
// access. edit, where not nil, changes the configuration.
func Start(t testing.TB, edit func(*plane.SingleConfig)) (*plane.Single, *rest.Config) {
	t.Helper()
	dir := t.TempDir()
	cfg := plane.SingleConfig{
		Cluster: "test", Bin: Bin(t), Dir: filepath.Join(dir, "cluster"), LogDir: filepath.Join(dir, "logs"),
		Address: Address(t), ServiceCIDR: "127.129.96.0/20",
	}
	if edit != nil {
		edit(&cfg)
	}
	p, err := plane.StartSingle(t.Context(), Supervisor(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, Admin(t, p)
}

// Admin returns the administrator's access to a control plane.
func Admin(t testing.TB, p *plane.Single) *rest.Config {
	t.Helper()
	kubeconfig, err := p.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 500, 500
	return config
}
