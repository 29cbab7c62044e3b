package stockout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/transport"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/platform"
)

const image = "talos-amd64-v1.12.2"

// environment is a control plane of three Machines: m1 has a server, cx33 was out of stock for m2 and m3.
type environment struct {
	t       *testing.T
	cfg     config.Config
	objects *kubetest.Server
	hetzner *hetznertest.Server
	mgmt    *kube.Cluster
	said    *clustertest.Messages
	consent bool
	// replaced are Machines that the control plane provider would have replaced at some moment.
	replaced []string
}

func newWorld(t *testing.T, out ...string) *environment {
	t.Helper()
	w := &environment{t: t, cfg: config.Defaults(), objects: kubetest.New("management", clustertest.ClusterAPIKinds()...),
		hetzner: hetznertest.NewSelling(out...), said: &clustertest.Messages{}, consent: true}
	t.Cleanup(w.hetzner.Close)
	t.Cleanup(func() {
		w.objects.CloseClientConnections()
		w.objects.Close()
	})
	w.cfg.ServerType, w.cfg.Location = "cx33,cpx32", "nbg1,fsn1"
	w.hetzner.Put("images", 1, hetznertest.Image(1, image, "x86", "available"))
	w.hetzner.Put("servers", 1, schema.Server{ID: 1, Name: "m1", ServerType: schema.ServerType{Name: "cx33"},
		Location: schema.Location{Name: "nbg1"}, Labels: map[string]string{"caph-cluster-k8s": "owned",
			"machine_type": "control_plane"}})
	var err error
	if w.mgmt, err = kube.Connect(w.objects.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	for _, o := range w.rendered().Now {
		w.objects.Put(o)
	}
	w.objects.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{
		"status": clustertest.Map{"failureDomains": clustertest.Map{"nbg1": clustertest.Map{"controlPlane": true}}}})
	for i := 1; i <= 3; i++ {
		w.machine(fmt.Sprintf("m%d", i), i == 1)
	}
	return w
}

func (w *environment) sources() render.Sources { return clustertest.Sources(w.t, w.cfg, "") }

// rendered are the cluster's objects as apply has applied them.
func (w *environment) rendered() *render.Rendered {
	w.t.Helper()
	v := render.ManifestVariables(w.sources(), image, "eu-central", render.MadeUp(w.cfg))
	r, err := render.Manifests(w.cfg, w.sources(), v)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *environment) machine(name string, server bool) {
	meta := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""},
		"annotations": clustertest.Map{capi.ClonedFromAnnotation: w.rendered().Template,
			capi.ClonedFromKindAnnotation: "HCloudMachineTemplate.infrastructure.cluster.x-k8s.io"}}
	spec, status := clustertest.Map{"type": "cx33", "imageName": image}, clustertest.Map{}
	if server {
		spec["providerID"] = "hcloud://1"
	} else {
		status["conditions"] = []any{clustertest.Map{"type": "ServerCreateSucceeded", "status": "False",
			"severity": "Warning", "reason": "ServerCreateFailedReason",
			"message": "error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)"}}
	}
	w.objects.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name,
		clustertest.Map{"metadata": meta,
			"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": name}, "failureDomain": "nbg1",
				"providerID": spec["providerID"]}}))
	w.objects.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name,
		clustertest.Map{"metadata": meta, "spec": spec, "status": status}))
}

// observe has the control plane provider look at the objects after every write.
func (w *environment) observe() {
	w.objects.SetReact(func(*unstructured.Unstructured) {
		all := w.objects.All()
		var template string
		for _, o := range all {
			if o.GetKind() == "TalosControlPlane" {
				template = capi.Text(o, "spec", "infrastructureTemplate", "name")
			}
		}
		for _, o := range all {
			if from := o.GetAnnotations()[capi.ClonedFromAnnotation]; o.GetKind() == "HCloudMachine" && from != "" &&
				from != template {
				w.replaced = append(w.replaced, o.GetName())
			}
		}
	})
}

func (w *environment) watch() *stockout.Watch {
	return &stockout.Watch{Cfg: w.cfg, Sources: w.sources(), Say: w.said.Add,
		Tools: platform.Tools{Hetzner: w.hetzner.Client(nil), Consent: w.consent}}
}

// look looks until nothing more is changed, and returns what is said then.
func (w *environment) look(ctx context.Context) string {
	w.t.Helper()
	watch := w.watch()
	for range 10 {
		busy, keeps, err := watch.Check(ctx, w.mgmt)
		if err != nil {
			return "error: " + err.Error()
		}
		if !busy {
			return keeps
		}
	}
	w.t.Fatal("it changes something again and again")
	return ""
}

func (w *environment) get(kind, name string) *unstructured.Unstructured {
	for _, o := range w.objects.All() {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

func (w *environment) machines() string {
	var names []string
	for _, o := range w.objects.All() {
		if o.GetKind() == "Machine" {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// template is the control plane's, and its server type.
func (w *environment) template() (name, serverType string) {
	name = capi.Text(w.get("TalosControlPlane", w.cfg.ControlPlaneName()), "spec", "infrastructureTemplate", "name")
	return name, capi.Text(w.get("HCloudMachineTemplate", name), "spec", "template", "spec", "type")
}

// continued checks that the control plane goes on with cpx32 as if its manifests had been rendered for it, and that the
// server that exists stays.
func (w *environment) continued() {
	w.t.Helper()
	name, serverType := w.template()
	again := w.cfg
	again.ServerType = "cpx32"
	w.cfg, again = again, w.cfg
	wanted := w.rendered().Template
	w.cfg = again
	if serverType != "cpx32" || name != wanted || w.machines() != "m1" {
		w.t.Errorf("template %s (wanted %s) with %s; Machines %s", name, wanted, serverType, w.machines())
	}
	if from := w.get("HCloudMachine", "m1").GetAnnotations()[capi.ClonedFromAnnotation]; from != name {
		w.t.Errorf("m1 is from %q, so a later change of the template would not replace it", from)
	}
	if len(w.replaced) > 0 {
		w.t.Errorf("the control plane provider would have replaced %v", w.replaced)
	}
}

func TestItContinuesWithTheNextServerTypeAndKeepsTheServersThatExist(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cx33 fsn1")
	w.observe()
	if keeps := w.look(t.Context()); keeps != "" {
		t.Errorf("it says %q", keeps)
	}
	w.continued()
}

// killer ends a run at one of its writes: the write arrives, at once or only when late is closed, and nothing after it.
type killer struct {
	inner  http.RoundTripper
	at     int
	late   chan struct{} // nil: the write arrives at once
	writes int
	landed sync.WaitGroup
}

func (k *killer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		k.writes++
	}
	switch {
	case k.writes < k.at:
		return k.inner.RoundTrip(r)
	case k.writes > k.at || r.Method == http.MethodGet:
	default:
		r = r.Clone(context.WithoutCancel(r.Context()))
		send := func() {
			if answer, err := k.inner.RoundTrip(r); err == nil {
				answer.Body.Close()
			}
		}
		if k.late == nil {
			send()
			break
		}
		k.landed.Go(func() {
			<-k.late
			send()
		})
	}
	return nil, errors.New("killed")
}

// Killed at any of its writes, the next run completes what was begun, also when that write arrives only after it.
func TestKilledAnywhereItIsCompleted(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newWorld(t, "cx33 nbg1", "cx33 fsn1")
			w.observe()
			k := &killer{at: n}
			if late {
				k.late = make(chan struct{})
			}
			alive := w.mgmt
			var err error
			through := kube.Connections{Wrap: func([]byte, bool) transport.WrapperFunc {
				return func(inner http.RoundTripper) http.RoundTripper {
					k.inner = inner
					return k
				}
			}}
			if w.mgmt, err = through.Connect(w.objects.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			w.look(t.Context())
			w.mgmt = alive
			w.look(t.Context())
			if late {
				close(k.late)
				k.landed.Wait()
				w.look(t.Context())
			}
			w.continued()
			if k.writes < n {
				if n < 7 {
					t.Errorf("only %d writes: something was not written", n)
				}
				break
			}
		}
	}
}

func TestWithoutConsentItChangesNothingAndSaysWhatToType(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cx33 fsn1")
	w.consent = false
	keeps := w.look(t.Context())
	if len(w.objects.Writes()) > 0 || !strings.Contains(keeps,
		"server type cpx32 in nbg1 is in stock: run again with --yes") {
		t.Errorf("%d writes, it says %q", len(w.objects.Writes()), keeps)
	}
}

func TestAnotherLocationOfTheNetworkZone(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cpx32 nbg1")
	w.cfg.Location = "nbg1,ash,fsn1"
	watch := w.watch()
	for range 3 {
		if _, _, err := watch.Check(t.Context(), w.mgmt); err != nil {
			t.Fatal(err)
		}
	}
	infrastructure := w.get("HetznerCluster", "k8s")
	regions, _, _ := unstructured.NestedStringSlice(infrastructure.Object, "spec", "controlPlaneRegions")
	if !slices.Equal(regions, []string{"fsn1"}) || capi.Text(infrastructure, "spec", "controlPlaneLoadBalancer",
		"region") != "nbg1" || w.machines() != "m1 m2 m3" {
		t.Errorf("regions %v; Machines %s", regions, w.machines())
	}
	// CAPH and Cluster API pass the locations on; until then another Machine would be created in the old one.
	w.objects.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{
		"status": clustertest.Map{"failureDomains": clustertest.Map{"nbg1": nil, "fsn1": clustertest.Map{}}}})
	w.look(t.Context())
	if name, serverType := w.template(); serverType != "cx33" || w.machines() != "m1" {
		t.Errorf("template %s with %s; Machines %s", name, serverType, w.machines())
	}
}

// A restored cluster has locations that its configuration does not name.
func TestTheLocationsThatItHasAreKept(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cx33 fsn1", "cx33 hel1")
	w.cfg.Location = "nbg1"
	w.objects.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", clustertest.Map{
		"spec": clustertest.Map{"controlPlaneRegions": []any{"fsn1", "hel1"}}})
	w.look(t.Context())
	regions, _, _ := unstructured.NestedStringSlice(w.get("HetznerCluster", "k8s").Object, "spec", "controlPlaneRegions")
	if _, serverType := w.template(); serverType != "cpx32" || !slices.Equal(regions, []string{"fsn1", "hel1"}) {
		t.Errorf("%s in %v", serverType, regions)
	}
}

func TestNothingElseIsInStock(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cx33 fsn1", "cpx32 nbg1", "cpx32 fsn1")
	keeps := w.look(t.Context())
	if len(w.objects.Writes()) > 0 || !strings.Contains(keeps, "nothing else that is configured is in stock") ||
		!strings.Contains(keeps, "cpx32 is out of stock in fsn1") || !strings.Contains(keeps, "are kept") {
		t.Errorf("%d writes, it says %q", len(w.objects.Writes()), keeps)
	}
}

func TestAServerTypeWithoutImageIsNotUsed(t *testing.T) {
	w := newWorld(t, "cx33 nbg1")
	w.cfg.ServerType, w.cfg.Location = "cx33,cax21", "nbg1"
	keeps := w.look(t.Context())
	if len(w.objects.Writes()) > 0 || !strings.Contains(keeps, "cax21 cannot be used") ||
		!strings.Contains(keeps, "IMAGE_ARCHITECTURES=arm64") {
		t.Errorf("%d writes, it says %q", len(w.objects.Writes()), keeps)
	}
	w.hetzner.Put("images", 2, hetznertest.Image(2, "talos-arm64-v1.12.2", "arm", "available"))
	w.look(t.Context())
	name, serverType := w.template()
	if has := capi.Text(w.get("HCloudMachineTemplate", name), "spec", "template", "spec",
		"imageName"); serverType != "cax21" ||
		has != "talos-arm64-v1.12.2" {
		t.Errorf("%s with %s, image %s", name, serverType, has)
	}
}

// What must not be touched.
func TestItLeavesAlone(t *testing.T) {
	for what, change := range map[string]func(*environment){
		"a server type that is in stock again": func(w *environment) { w.hetzner.Sell() },
		"a paused cluster": func(w *environment) {
			w.objects.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": true}})
		},
		"the only server type and location": func(w *environment) { w.cfg.ServerType, w.cfg.Location = "cx33", "nbg1" },
		"Machines that wait for something else": func(w *environment) {
			for _, name := range []string{"m2", "m3"} {
				w.objects.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name, clustertest.Map{
					"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "ServerCreateSucceeded",
						"status": "False", "reason": "ImageNotFound", "message": "no image found"}}}})
			}
		},
	} {
		w := newWorld(t, "cx33 nbg1", "cx33 fsn1")
		change(w)
		before := len(w.objects.Writes())
		if keeps := w.look(t.Context()); len(w.objects.Writes()) != before {
			t.Errorf("%s: %d writes, it says %q", what, len(w.objects.Writes())-before, keeps)
		}
	}
}

// A server that Hetzner has created while CAPH still tells of the refusal is not deleted.
func TestAMachineWithAServerAtHetznerIsNotDeleted(t *testing.T) {
	w := newWorld(t, "cx33 nbg1", "cx33 fsn1")
	w.hetzner.Put("servers", 3, schema.Server{ID: 3, Name: "m3", Labels: map[string]string{"caph-cluster-k8s": "owned",
		"machine.caph-name": "m3"}})
	w.look(t.Context())
	if w.machines() != "m1 m3" {
		t.Errorf("Machines %s", w.machines())
	}
}
