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
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// Bin returns the folder of the lab's programs: SLIPWAY_LAB_BIN, or the newest that `lab build` made in the user's
// cache of all programs. Where there is none the test is skipped, and fails on a machine that claims to be CI.
func Bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SLIPWAY_LAB_BIN"); dir != "" {
		return dir
	}
	if cache, err := os.UserCacheDir(); err == nil {
		if dir := newest(filepath.Join(cache, "slipway", "lab", "*", "bin"), plane.ProgramEtcd, "kube-apiserver",
			"cluster-api"); dir != "" {
			return dir
		}
	}
	const missing = "the lab's programs are not built: run `go run ./cmd/bootstrap lab build`, or set SLIPWAY_LAB_BIN " +
		"to their folder"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Core returns the folder of the program of Cluster API's core of a minor ("v1.13") that `lab build` made. Where there
// is none the test is skipped.
func Core(t testing.TB, minor string) string {
	t.Helper()
	if cache, err := os.UserCacheDir(); err == nil {
		folders, _ := filepath.Glob(filepath.Join(cache, "slipway", "lab", "*", "bin")) // the only error is a bad pattern
		for _, folder := range folders {
			info, err := buildinfo.ReadFile(filepath.Join(folder, "cluster-api"))
			if err == nil && strings.HasPrefix(info.Main.Version, minor+".") {
				return folder
			}
		}
	}
	t.Skipf("Cluster API %s is not built: run `go run ./cmd/bootstrap lab build CAPI_VERSION=%s.0`", minor, minor)
	return ""
}

// newest returns the folder that the pattern matches and that has some files, the one in which the first is the
// youngest.
func newest(pattern string, files ...string) (dir string) {
	var youngest time.Time
	folders, _ := filepath.Glob(pattern) // the only error is a bad pattern
	for _, folder := range folders {
		has := !slices.ContainsFunc(files, func(file string) bool {
			_, err := os.Stat(filepath.Join(folder, file))
			return err != nil
		})
		if info, err := os.Stat(filepath.Join(folder, files[0])); has && err == nil && info.ModTime().After(youngest) {
			dir, youngest = folder, info.ModTime()
		}
	}
	return dir
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
