//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/environment"
	"github.com/slipway-k8s/slipway/lab/management"
)

// TestFaults injects faults into a management cluster and the simulated cloud, and checks the recovery.
func TestFaults(t *testing.T) {
	d := serveLab(t, filepath.Join(t.TempDir(), "lab"))
	m, err := d.EnsureManagement(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("nonsense", func(t *testing.T) { testNoFaults(t, d) })
	t.Run("restart", func(t *testing.T) { testAPIServerRestart(t, d, m) })
	t.Run("away", func(t *testing.T) { testManagementAway(t, d, m) })
	t.Run("cloud", func(t *testing.T) { testCloudFaults(t, d) })
	t.Run("expired", func(t *testing.T) { testExpiredKubeconfig(t, d, m) })
}

func testNoFaults(t *testing.T, d *daemon) {
	for want, f := range map[string]environment.Fault{
		"there is no fault": {Fault: cloud.Fault{Kind: "gremlins"}},
		"apiserver-restart has no method": {Fault: cloud.Fault{Kind: environment.FaultAPIServerRestart,
			Method: "GET"}},
		"webhook-unready needs service": {Fault: cloud.Fault{Kind: environment.FaultWebhookUnready}},
		`cluster "other", server "": no kube-apiserver`: {Fault: cloud.Fault{Kind: environment.FaultAPIServerRestart},
			Cluster: "other"},
		`management cluster "other" does not exist`: {Fault: cloud.Fault{Kind: environment.FaultManagementAway},
			Cluster: "other"},
		`no server is named "x*"`: {Fault: cloud.Fault{Kind: environment.FaultVanishServer, Server: "x*"}},
		"give an absolute path": {Fault: cloud.Fault{Kind: environment.FaultExpiredKubeconfig}, Cluster: "m",
			File: "kubeconfig"},
		"a time cannot be negative": {Fault: cloud.Fault{Kind: environment.FaultManagementAway}, For: -1},
		"status 200 is no error":    {Fault: cloud.Fault{Kind: cloud.FaultError, Status: 200}},
	} {
		if begun, err := d.AddFault(t.Context(), f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", begun, err, want)
		}
	}
	if err := d.RemoveFault(t.Context(), 77); err == nil || !strings.Contains(err.Error(), "no such fault") {
		t.Errorf("a fault that is not there: %v", err)
	}
	awaitFaults(t, d)
}

// add brings a fault into force, which is then listed.
func add(t *testing.T, d *daemon, f environment.Fault) environment.InForce {
	t.Helper()
	begun, err := d.AddFault(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return begun
}

// awaitFaults waits until these faults are in force, and no others.
func awaitFaults(t *testing.T, d *daemon, ids ...int64) {
	t.Helper()
	await(t, "end of the faults", func() error {
		all, err := d.Faults(t.Context())
		var listed []int64
		for _, f := range all {
			listed = append(listed, f.ID)
		}
		if err == nil && !slices.Equal(listed, ids) {
			err = fmt.Errorf("in force are %+v, not %v", all, ids)
		}
		return err
	})
}

func apiServerOf(t *testing.T, d *daemon) int {
	t.Helper()
	for _, p := range statusOf(t, d).Processes {
		if p.Name == "kube-apiserver" {
			return p.PID
		}
	}
	return 0
}

func testAPIServerRestart(t *testing.T, d *daemon, m management.Description) {
	before := apiServerOf(t, d)
	cs := client(t, m)
	f := add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultAPIServerRestart}, Cluster: "m",
		For: cloud.Duration(time.Second)})
	if pid := apiServerOf(t, d); pid != 0 {
		t.Errorf("it runs as process %d, was %d", pid, before)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // the client tries again and again
	defer cancel()
	if _, err := cs.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
		t.Error("an apiserver that was killed answers")
	}
	awaitFaults(t, d)
	if passed := time.Since(f.Since); passed < time.Second {
		t.Errorf("it was back after %v", passed)
	}
	if _, err := cs.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("after its restart: %v", err)
	}
	if after := apiServerOf(t, d); after == before || after == 0 {
		t.Errorf("it is process %d still", after)
	}
}

func testManagementAway(t *testing.T, d *daemon, m management.Description) {
	cs, pid := client(t, m), apiServerOf(t, d)
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := cs.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	f := add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultManagementAway},
		For: cloud.Duration(time.Hour)})
	if f.Cluster != "m" || f.Until.Before(time.Now().Add(59*time.Minute)) {
		t.Errorf("the only cluster is away as %+v", f)
	}
	if err := get(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("away, it answers %v", err)
	}
	if err := d.RemoveFault(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
	await(t, "answer", get)
	add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultManagementAway},
		For: cloud.Duration(700 * time.Millisecond)})
	if err := get(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("away once more, it answers %v", err)
	}
	awaitFaults(t, d)
	await(t, "answer", get)
	if now := apiServerOf(t, d); now != pid {
		t.Errorf("process %d has become %d", pid, now)
	}
}

func testCloudFaults(t *testing.T, d *daemon) {
	info, err := d.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hc := hcloud.NewClient(hcloud.WithToken(info.Token), hcloud.WithEndpoint(info.HetznerEndpoint))
	// Out of stock for the second of three, and in stock again.
	once := add(t, d, environment.Fault{Fault: cloud.Fault{Kind: cloud.FaultOutOfStock, Skip: 1, Times: 1}})
	add(t, d, environment.Fault{Fault: cloud.Fault{Kind: cloud.FaultError, Path: "/volumes"},
		For: cloud.Duration(300 * time.Millisecond)})
	var made []string
	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		_, _, err := hc.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: name, ServerType: &hcloud.ServerType{Name: "cx33"}, Image: &hcloud.Image{Name: "debian-12"},
			Location: &hcloud.Location{Name: "nbg1"},
		})
		switch {
		case err == nil:
			made = append(made, name)
		case !hcloud.IsError(err, hcloud.ErrorCodeResourceUnavailable):
			t.Fatal(err)
		}
	}
	if !slices.Equal(made, []string{"cp-1", "cp-3"}) {
		t.Errorf("made %v", made)
	}
	awaitFaults(t, d)
	if once.Hits != 0 {
		t.Errorf("a new fault has %d hits", once.Hits)
	}
	vanished := add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultVanishServer, Server: "cp-*",
		Seed: 7}})
	left, err := hc.Server.All(t.Context())
	if err != nil || len(left) != 1 || left[0].Name == vanished.Server || !slices.Contains(made, vanished.Server) {
		t.Errorf("of %v %s vanished, %v are left (%v)", made, vanished.Server, left, err)
	}
	awaitFaults(t, d)
	testVanishedLoadBalancer(t, d, hc)
}

// A load balancer that vanishes leaves its Primary IP.
func testVanishedLoadBalancer(t *testing.T, d *daemon, hc *hcloud.Client) {
	ip, _, err := hc.PrimaryIP.Create(t.Context(), hcloud.PrimaryIPCreateOpts{Name: "kept", Type: hcloud.PrimaryIPTypeIPv4,
		Location: "nbg1", AutoDelete: hcloud.Ptr(false)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := hc.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{Name: "front",
		LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: ip.PrimaryIP}}); err != nil {
		t.Fatal(err)
	}
	add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultVanishLoadBalancer}, LoadBalancer: "fr*"})
	balancers, err := hc.LoadBalancer.All(t.Context())
	if err != nil || len(balancers) != 0 {
		t.Errorf("there are still %d load balancers (%v)", len(balancers), err)
	}
	kept, _, err := hc.PrimaryIP.GetByName(t.Context(), "kept")
	if err != nil || kept == nil || kept.AssigneeID != 0 || !kept.IP.Equal(ip.PrimaryIP.IP) {
		t.Errorf("its Primary IP is %+v (%v)", kept, err)
	}
	awaitFaults(t, d)
}

// testExpiredKubeconfig ends the lab.
func testExpiredKubeconfig(t *testing.T, d *daemon, m management.Description) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(m.Kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() *kubernetes.Clientset {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return client(t, management.Description{Kubeconfig: string(b)})
	}
	expire := environment.Fault{Fault: cloud.Fault{Kind: environment.FaultExpiredKubeconfig}, Cluster: "m", File: file}
	f := add(t, d, expire)
	if _, err := read().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsUnauthorized(
		err) {
		t.Errorf("with an expired certificate: %v", err)
	}
	if err := d.RemoveFault(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != m.Kubeconfig {
		t.Errorf("the file is not as it was: %v", err)
	}
	// What was written since stays.
	f = add(t, d, expire)
	if err := os.WriteFile(file, []byte("renewed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveFault(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "renewed" {
		t.Errorf("a file that was renewed meanwhile: %s, %v", b, err)
	}
	// The end of the lab is the end of its faults.
	if err := os.WriteFile(file, []byte(m.Kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, d, expire)
	add(t, d, environment.Fault{Fault: cloud.Fault{Kind: environment.FaultManagementAway}})
	began := time.Now()
	if err := d.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if passed := time.Since(began); passed > 10*time.Second {
		t.Errorf("a lab with a frozen process ends after %v", passed)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != m.Kubeconfig {
		t.Errorf("at the lab's end the file is not as it was: %v", err)
	}
}
