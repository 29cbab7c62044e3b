package fakeenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	xcrypto "github.com/siderolabs/crypto/x509"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

type object = map[string]any

const (
	providerLabel = "cluster.x-k8s.io/provider"
	capi          = "cluster.x-k8s.io/v1beta1"
	caph          = "infrastructure.cluster.x-k8s.io/v1beta1"
	cacppt        = "controlplane.cluster.x-k8s.io/v1alpha3"
	networkID     = 77
	firstServer   = 100
	// loadBalancer is the address that the environment gives the cluster; nothing listens there.
	loadBalancer = "127.0.0.9"
)

func publicAddress(i int) string  { return fmt.Sprintf("127.0.1.%d", i) }
func privateAddress(i int) string { return fmt.Sprintf("10.10.64.%d", 2+i) }

// Servers are the names of the cluster's servers.
func (w *Environment) Servers() []string {
	var names []string
	for i := range w.plan.Replicas {
		names = append(names, fmt.Sprintf("%s-%d", w.plan.ControlPlane, i))
	}
	return names
}

// count notes that something was made.
func (w *Environment) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[what]++
}

// manage plays the controllers of the management cluster: of Deployments, CAPH, CABPT and CACPPT. What was made for an
// object is not made for it again.
func (w *Environment) manage(o *unstructured.Unstructured) {
	w.reconciling.Lock()
	defer w.reconciling.Unlock()
	if o = w.Management.Get(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()); o == nil { // as it is now
		return
	}
	w.reconcile(o)
}

func (w *Environment) reconcile(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "Deployment":
		w.ready(w.Management, o)
	case "HetznerCluster":
		if !w.refuses(o, "HetznerCluster") {
			w.infrastructure(o)
		}
	case "TalosControlPlane":
		done, _, _ := unstructured.NestedBool(o.Object, "status", "initialized")
		if !done && !w.withoutInfrastructure() && !w.refuses(o, "HCloudMachine") {
			w.controlPlane(o)
		}
	}
}

// infrastructure makes what a HetznerCluster asks for: the network, and the load balancer unless it names one.
func (w *Environment) infrastructure(o *unstructured.Unstructured) {
	if w.Made()["network"] == 0 {
		w.count("network")
		w.Hetzner.SetNetworks(schema.Network{ID: networkID, Labels: w.owned(), IPRange: "10.10.0.0/16"})
	}
	host, _, _ := unstructured.NestedString(o.Object, "spec", "controlPlaneEndpoint", "host")
	if name, named, _ := unstructured.NestedString(o.Object, "spec", "controlPlaneLoadBalancer", "name"); named {
		w.Hetzner.OwnLoadBalancer(name, "caph-cluster-"+w.plan.Cluster)
	} else if host == "" {
		w.count("load balancer")
		w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(networkID+1, o.GetName()+"-kube-apiserver", loadBalancer,
			w.owned(), 6443, 50000))
		w.Management.Change(caph, "HetznerCluster", o.GetNamespace(), o.GetName(),
			object{"spec": object{"controlPlaneEndpoint": object{"host": loadBalancer}}})
	}
	if waits := w.Management.Get(cacppt, "TalosControlPlane", o.GetNamespace(), w.plan.ControlPlane); waits != nil {
		w.reconcile(waits)
	}
}

func (w *Environment) owned() map[string]string {
	return map[string]string{"caph-cluster-" + w.plan.Cluster: "owned"}
}

// controlPlane makes servers, machines, nodes and the cluster's Secrets.
func (w *Environment) controlPlane(o *unstructured.Unstructured) {
	cluster, ns := object{"cluster.x-k8s.io/cluster-name": w.plan.Cluster}, w.plan.Namespace
	labels := object{"cluster.x-k8s.io/cluster-name": w.plan.Cluster, "cluster.x-k8s.io/control-plane": ""}
	var servers []schema.Server
	for i, name := range w.Servers() {
		w.count("server " + name)
		servers = append(servers, schema.Server{
			ID: int64(firstServer + i), Name: name, Status: "running", Labels: w.owned(),
			PrivateNet: []schema.ServerPrivateNet{{IP: privateAddress(i)}}})
		w.Management.Put(kubetest.Object(caph, "HCloudMachine", ns, name, object{
			"metadata": object{"labels": labels}, "spec": object{"providerID": providerID(i)},
			"status": object{"instanceState": "running"},
		}))
		w.Management.Put(kubetest.Object(capi, "Machine", ns, name, object{
			"metadata": object{"labels": labels}, "spec": object{"infrastructureRef": object{"name": name}},
			"status": object{"addresses": []any{
				object{"type": "InternalIP", "address": privateAddress(i)}, object{"type": "ExternalIP",
					"address": publicAddress(i)}}},
		}))
		w.Workload.Put(kubetest.Object("v1", "Node", "", name, object{
			"metadata": object{"labels": object{"node-role.kubernetes.io/control-plane": ""}},
			"spec": object{"taints": []any{object{"key": "node.cloudprovider.kubernetes.io/uninitialized",
				"effect": "NoSchedule"}}},
			"status": object{"nodeInfo": object{"kubeletVersion": config.Defaults().KubernetesVersion},
				"addresses": []any{object{"type": "InternalIP", "address": privateAddress(i)}}},
		}))
	}
	w.Hetzner.SetServers(servers...)
	w.Hetzner.TargetServers("caph-cluster-" + w.plan.Cluster)
	secret := func(name, key string, value []byte) {
		w.Management.Put(kubetest.Object("v1", "Secret", ns, name, object{"metadata": object{"labels": cluster},
			"data": object{key: value}}))
	}
	secret(w.plan.Cluster+"-kubeconfig", "value", w.Workload.Kubeconfig())
	secret(w.plan.Cluster+"-talosconfig", "talosconfig", w.talosconfig)
	w.Management.Change(cacppt, "TalosControlPlane", ns, o.GetName(), object{"status": object{"initialized": true}})
}

func providerID(i int) string { return fmt.Sprintf("hcloud://%d", firstServer+i) }

// work plays the controllers of the workload cluster: of Deployments and DaemonSets, Cilium and the Hetzner CCM.
func (w *Environment) work(o *unstructured.Unstructured) {
	if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
		return
	}
	w.reconciling.Lock()
	defer w.reconciling.Unlock()
	w.ready(w.Workload, o)
	for i, name := range w.Servers() {
		switch o.GetName() {
		case "cilium":
			w.Workload.Change("v1", "Node", "", name,
				object{"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}}})
		case "hcloud-cloud-controller-manager":
			w.Workload.Change("v1", "Node", "", name, object{"spec": object{"providerID": providerID(i), "taints": nil}})
			w.Management.Change(capi, "Machine", w.plan.Namespace, name,
				object{"status": object{"nodeRef": object{"name": name}}})
		}
	}
}

// ready makes a workload so, if it is still there.
func (w *Environment) ready(in *kubetest.Server, o *unstructured.Unstructured) {
	if in.Get(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()) == nil {
		return
	}
	n := w.plan.Replicas
	in.Change(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName(), object{"status": object{
		"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "desiredNumberScheduled": n, "updatedNumberScheduled": n,
		"numberReady": n}})
}

func selfSigned() (*xcrypto.PEMEncodedCertificateAndKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &xcrypto.PEMEncodedCertificateAndKey{Crt: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, nil
}
