// Package labtest answers on a lab's control socket in tests.
package labtest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// FakeLab answers on a lab's control socket as the lab's documentation says.
type FakeLab struct {
	Dir    string // the lab's folder
	Info   lab.Info
	Server *http.Server

	mu          sync.Mutex
	Asked       []string // METHOD path
	Managements map[string]bool
	Created     string            // version of Kubernetes that the last management cluster was asked for
	Kubernetes  map[string]string // folders of programs that it was given, by version
	Faults      map[int][]byte    // as they were asked for
	Stood       int               // how often it stood still
	Standing    bool
	Impatient   bool // it continues before it is asked to
}

// NewFakeLab begins to listen in a folder with a path short enough for a socket.
func NewFakeLab(t *testing.T) *FakeLab {
	t.Helper()
	state, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	dir := filepath.Join(state, statedir.LabFolder)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &FakeLab{Dir: dir, Managements: map[string]bool{}, Kubernetes: map[string]string{}, Faults: map[int][]byte{}, Info: lab.Info{
		PID: 1 << 30, Token: "the-labs-own-token", HetznerEndpoint: "http://127.65.0.1:8080/v1",
		NetworkCIDR: "127.64.0.0/16", ControlPlaneCIDR: "127.64.64.0/25", ServiceCIDR: "127.64.96.0/20",
		PodCIDR:            "127.64.128.0/17",
		ProviderRepository: "/repository", CertManagerURL: "/repository/cert-manager.yaml", CertManagerVersion: "v1.21.1",
		ChartRepositories: map[string]string{
			"cilium": "http://127.65.0.2:8081", "hcloud-cloud-controller-manager": "http://127.65.0.2:8081",
			"talos-cloud-controller-manager": "http://127.65.0.2:8081",
		},
		Versions: map[string]string{"CAPI": "v1.13.6", "CACPPT": "v0.5.13"},
		Notes:    []string{"charts are stand-ins"},
	}}
	f.listen(t, filepath.Join(dir, "lab.sock"))
	return f
}

func (f *FakeLab) listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = &http.Server{Handler: http.HandlerFunc(f.serve)}
	go func() { _ = f.Server.Serve(l) }()
	t.Cleanup(func() { f.Server.Close() })
}

// standStill plays a lab that is saved.
func (f *FakeLab) standStill(w http.ResponseWriter, r *http.Request) {
	set := func(standing bool) (impatient bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.Standing = standing; standing {
			f.Stood++
		}
		return f.Impatient
	}
	impatient := set(true)
	defer set(false)
	control := http.NewResponseController(w)
	if control.EnableFullDuplex() != nil || control.Flush() != nil {
		return
	}
	if !impatient {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	_ = json.NewEncoder(w).Encode(map[string]bool{"stood": !impatient})
}

func (f *FakeLab) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/freeze" {
		f.standStill(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Asked = append(f.Asked, r.Method+" "+r.URL.Path)
	name := filepath.Base(r.URL.Path)
	status, answer := http.StatusOK, any(struct{}{})
	switch route := r.Method + " " + filepath.Dir(r.URL.Path); {
	case r.Method+" "+r.URL.Path == "GET /v1/info":
		answer = f.Info
	case route == "PUT /v1/clusters":
		answer = f.Info
	case r.Method+" "+r.URL.Path == "GET /v1/status":
		answer = map[string]any{
			"isolation": "network namespace",
			"parts":     []map[string]string{{"name": "etcd", "fidelity": "real", "detail": "v3.5.16"}},
			"processes": []map[string]any{{"name": "etcd", "pid": 7, "cluster": "k8s-mgmt", "rssBytes": 64 << 20}},
			"loadBalancers": []map[string]any{{"name": "k8s-kube-apiserver", "publicIPv4": "127.65.2.1",
				"privateIP": "127.64.0.2", "services": []map[string]any{
					{"listenPort": 6443, "destinationPort": 6443, "healthy": 2, "targets": 3, "listening": true},
					{"listenPort": 50000, "destinationPort": 50001, "healthy": 0, "targets": 3},
				}}},
			"faults":  []map[string]any{{"id": 3, "kind": "reset", "path": "/servers", "hits": 1}},
			"servers": []map[string]any{{"name": "cp-1", "id": 42, "status": "running", "publicIPv4": "127.65.4.1"}},
		}
	case r.Method+" "+r.URL.Path == "POST /v1/down":
		// As the lab does: what is being answered is answered first.
		defer func() { go func() { _ = f.Server.Shutdown(context.WithoutCancel(r.Context())) }() }()
	case strings.HasPrefix(r.URL.Path, "/v1/faults"):
		id, _ := strconv.Atoi(name) // none in the path of all
		status, answer = f.serveFaults(r, id)
	case r.Method+" "+r.URL.Path == "PUT /v1/kubernetes":
		var given struct{ For, Bin string }
		if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
			status, answer = http.StatusBadRequest, map[string]string{"error": err.Error()}
		}
		f.Kubernetes[given.For] = given.Bin
	case r.Method+" "+r.URL.Path == "PUT /v1/charts":
		status = f.offer(r)
		answer = f.Info
	case route == "PUT /v1/images":
	case route == "PUT /v1/management":
		f.Managements[name] = true
		var wanted struct{ Kubernetes string }
		if err := json.NewDecoder(r.Body).Decode(&wanted); err == nil {
			f.Created = wanted.Kubernetes
		}
		answer = map[string]string{"name": name, "kubeconfig": "kind: Config # " + name}
	case route == "GET /v1/management" && f.Managements[name]:
	case route == "DELETE /v1/management" && f.Managements[name]:
		delete(f.Managements, name)
	case route == "GET /v1/management" && name == "broken":
		status, answer = http.StatusInternalServerError, map[string]string{"error": "etcd is on fire"}
	default:
		status, answer = http.StatusNotFound, map[string]string{"error": "there is no " + name}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// offer plays a lab whose charts are stand-ins.
func (f *FakeLab) offer(r *http.Request) (status int) {
	var wanted map[string]string
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return http.StatusBadRequest
	}
	if f.Info.Offers == nil { // one of an older release
		return http.StatusNotFound
	}
	for name, version := range wanted {
		f.Info.Offers[name] = append(f.Info.Offers[name], version)
	}
	return http.StatusOK
}

// serveFaults plays the lab's part.
func (f *FakeLab) serveFaults(r *http.Request, id int) (status int, answer any) {
	force := func(id int) map[string]any {
		fields := map[string]any{}
		_ = json.Unmarshal(f.Faults[id], &fields) // it was read before
		fields["id"], fields["hits"], fields["since"] = id, 3, time.Now()
		return fields
	}
	switch r.Method {
	case http.MethodPost:
		var told map[string]any
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil || told["kind"] == "gremlins" {
			return http.StatusBadRequest, map[string]string{"error": "there is no fault gremlins"}
		}
		data, err := json.Marshal(told)
		if err != nil {
			return http.StatusBadRequest, map[string]string{"error": err.Error()}
		}
		id := len(f.Faults) + 1
		f.Faults[id] = data
		return http.StatusOK, force(id)
	case http.MethodDelete:
		if f.Faults[id] == nil {
			return http.StatusNotFound, map[string]string{"error": "there is no such fault in force"}
		}
		delete(f.Faults, id)
		return http.StatusOK, struct{}{}
	default:
		list := []any{}
		for id := range f.Faults {
			list = append(list, force(id))
		}
		return http.StatusOK, map[string]any{"faults": list}
	}
}
