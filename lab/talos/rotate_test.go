package talos

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// rotating is a cluster of a control plane server (1) and a worker (7) whose authorities are rotated.
type rotating struct {
	*testing.T
	f                *fixture
	x                *Talos
	machine, cluster rotation
	nodes            []string
}

func newClusterRotation(t testing.TB, f *fixture) rotation {
	t.Helper()
	ca, err := secrets.NewKubernetesCA(time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return rotation{f.bundle.Certs.K8s, &issuer{Crt: ca.CrtPEM, Key: ca.KeyPEM}}
}

// talos is a client of a server with a certificate of one authority.
func (r *rotating) talos(signer *issuer, id int) *client.Client {
	return clientOfCA(r, signer, []*issuer{r.machine.old, r.machine.next}, r.f.private(id))
}

// kube is an administrator with a certificate of one authority, who trusts the kube-apiserver of one.
func (r *rotating) kube(signer, trusted *issuer) kubernetes.Interface {
	r.Helper()
	return clientOf(r, r.access(signer, trusted))
}

func (r *rotating) access(signer, trusted *issuer) *rest.Config {
	r.Helper()
	ca, err := pki.ParseCA(pki.Pair{Cert: signer.Crt, Key: signer.Key})
	if err != nil {
		r.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{CommonName: "test", Organizations: []string{"system:masters"}})
	if err != nil {
		r.Fatal(err)
	}
	return &rest.Config{Host: "https://" + r.f.private(1) + ":6443", Timeout: 5 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{CAData: trusted.Crt, CertData: pair.Cert, KeyData: pair.Key}}
}

// apply takes a step on the control plane server and the worker, and waits for the kube-apiserver that follows it.
func (r *rotating) apply(signer *issuer, step func(rotation, bool) (*issuer, []*x509.PEMEncodedCertificate)) {
	r.Helper()
	before := r.x.Plane(1)
	for _, id := range []int{1, 7} {
		applyTo(r, r.Context(), r.talos(signer, id), func(c *v1alpha1.Config) {
			c.MachineConfig.MachineCA, c.MachineConfig.MachineAcceptedCAs = step(r.machine, id == 7)
			c.ClusterConfig.ClusterCA, c.ClusterConfig.ClusterAcceptedCAs = step(r.cluster, id == 7)
		})
	}
	await(r, patience, "the next kube-apiserver", func() error {
		if now := r.x.Plane(1); now == nil || now == before {
			return errors.New(statusOf(r, r.x, 1).APIServer)
		}
		return nil
	})
}

// refusedByAPI is nil if a kube-apiserver does not know an administrator's authority.
func refusedByAPI(c kubernetes.Interface, r *rotating) error {
	_, err := c.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return nil
	case err == nil:
		return errors.New("it is served")
	default:
		return err
	}
}

func servedByAPI(c kubernetes.Interface, r *rotating) error {
	_, err := c.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
	return err
}

func (r *rotating) check(what string, err error) {
	r.Helper()
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
}

// createPods runs an agent, with which a Node is Ready, and a process on every Node.
func (r *rotating) createPods(kube kubernetes.Interface) {
	r.Helper()
	for i, node := range r.nodes {
		agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("agent-%d", i)}, Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{{Name: "cni", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}}},
			Containers: []corev1.Container{{Name: "agent", Image: "example.org/agent:v1"}}}}
		app := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("app-%d", i)}, Spec: corev1.PodSpec{
			NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "app", Image: "example.org/sleep:v1"}}}}
		for _, pod := range []*corev1.Pod{agent, app} {
			await(r, patience, "Pod "+pod.Name, func() error { // its service account takes a moment
				_, err := kube.CoreV1().Pods("kube-system").Create(r.Context(), pod, metav1.CreateOptions{})
				return err
			})
		}
	}
}

// pids are the processes of the Pods, by name.
func (r *rotating) pids() map[string]int {
	r.Helper()
	found := map[string]int{}
	for _, s := range r.x.Status() {
		if s.Node == nil {
			continue
		}
		for _, p := range s.Node.Pods {
			for _, c := range p.Containers {
				if c.PID != 0 {
					found[p.Name] = c.PID
				}
			}
		}
	}
	return found
}

// ready returns since when every Node is Ready; an error while one is not.
func (r *rotating) ready(kube kubernetes.Interface) (map[string]metav1.Time, error) {
	list, err := kube.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	since := map[string]metav1.Time{}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				since[n.Name] = c.LastTransitionTime
			}
		}
	}
	if len(since) != len(r.nodes) {
		return nil, fmt.Errorf("Ready: %v", since)
	}
	return since, nil
}

// approve approves every request of a kubelet for a serving certificate until each Node has one.
func (r *rotating) approve(kube kubernetes.Interface, signer *issuer) {
	r.Helper()
	block, err := signer.GetCert()
	if err != nil {
		r.Fatal(err)
	}
	await(r, patience, "serving certificates", func() error {
		requests, err := kube.CertificatesV1().CertificateSigningRequests().List(r.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range requests.Items {
			if len(one.Status.Conditions) > 0 {
				continue
			}
			one.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			if _, err := kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(r.Context(), one.Name, &one,
				metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		for _, id := range []int64{1, 7} {
			path := r.x.server(id).path("var", "lib", "kubelet", "pki", "kubelet-serving.crt")
			cert, err := certificateOf(path)
			if err != nil {
				return err
			}
			if err := cert.CheckSignatureFrom(block); err != nil {
				return fmt.Errorf("server %d: %w", id, err)
			}
		}
		return nil
	})
}

// followed waits until the kubelets have used what a step has left them: their Nodes' leases are renewed, and the
// kube-apiserver reads logs from them.
func (r *rotating) followed(kube kubernetes.Interface) {
	r.Helper()
	from := time.Now()
	for i, node := range r.nodes {
		await(r, patience, "a renewal of the lease of "+node, func() error {
			lease, err := kube.CoordinationV1().Leases("kube-node-lease").Get(r.Context(), node, metav1.GetOptions{})
			if err == nil && !lease.Spec.RenewTime.After(from) {
				err = fmt.Errorf("last renewed %v", lease.Spec.RenewTime)
			}
			return err
		})
		await(r, patience, "the log of a Pod on "+node, func() error {
			return kube.CoreV1().Pods("kube-system").GetLogs(fmt.Sprintf("app-%d", i), &corev1.PodLogOptions{}).
				Do(r.Context()).Error()
		})
	}
}

// trustOfPods waits until every authority that Pods mount is the given one alone.
func (r *rotating) trustOfPods(kube kubernetes.Interface, ca *issuer) {
	r.Helper()
	is := func(what string, got []byte) error {
		if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(ca.Crt)) {
			return fmt.Errorf("%s is another one:\n%s", what, got)
		}
		return nil
	}
	await(r, patience, "the authority in Pods", func() error {
		published, err := kube.CoreV1().ConfigMaps("kube-system").Get(r.Context(), "kube-root-ca.crt",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := is("the ConfigMap's", []byte(published.Data["ca.crt"])); err != nil {
			return err
		}
		var files []string
		for _, id := range []int64{1, 7} {
			found, _ := filepath.Glob(r.x.server(id).path("var", "lib", "kubelet", "pods", "*", "volumes", "*",
				"ca.crt"))
			files = append(files, found...)
		}
		if len(files) != 4 { // of each process: the token's volume, and what the lab adds
			return fmt.Errorf("files: %v", files)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err == nil {
				err = is(path, b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// clientCertificates are the kubelets' client certificates.
func (r *rotating) clientCertificates() (all [][]byte) {
	r.Helper()
	for _, id := range []int64{1, 7} {
		cert, err := certificateOf(r.x.server(id).path("var", "lib", "kubelet", "pki", "kubelet-client.crt"))
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, cert.Raw)
	}
	return all
}

// TestRotate rotates both authorities of a cluster with real programs: accept the next ones, issue with them, drop the
// old ones.
func TestRotate(t *testing.T) {
	bin := planetest.Bin(t)
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), bin)
	x.config.Programs = []kubelet.Program{{Image: "example.org/sleep", Exec: "/bin/sleep", Args: []string{"3600"}}}
	var present atomic.Pointer[Talos]
	present.Store(x)
	f.serveEndpoint(t, &present)
	server, worker := f.hardware(1, f.userData(machine.TypeControlPlane)), f.hardware(7, f.userData(machine.TypeWorker))
	worker.Name = clusterName + "-worker"
	start(t, x, server, worker)
	booted(t, f.admin(t, f.private(1)))
	booted(t, f.admin(t, f.private(7)))
	bootstrap(t, f.admin(t, f.private(1)))
	access := awaitAPIServer(t, x, 1)
	r := &rotating{T: t, f: f, x: x, machine: newMachineRotation(t, f), cluster: newClusterRotation(t, f),
		nodes: []string{server.Name, worker.Name}}
	old, next := r.cluster.old, r.cluster.next
	kube := r.kube(old, old)
	await(t, patience, "the Nodes", func() error {
		list, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d", len(list.Items))
		}
		return err
	})
	r.createPods(kube)
	var since map[string]metav1.Time
	await(t, patience, "Ready Nodes", func() (err error) {
		since, err = r.ready(kube)
		return err
	})
	await(t, patience, "processes", func() error {
		if pids := r.pids(); len(pids) != 2 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
	pids, etcd, founded := r.pids(), etcdPID(x), r.clientCertificates()
	r.approve(kube, old)
	r.followed(kube)
	r.trustOfPods(kube, old)
	r.talosAccount(access)
	r.check("an administrator of the next authority before it is accepted", refusedByAPI(r.kube(next, old), r))

	r.apply(r.machine.old, rotation.accept)
	r.check("an administrator of the next authority", servedByAPI(r.kube(next, old), r))
	r.check("an administrator of the old authority", servedByAPI(r.kube(old, old), r))
	r.followed(kube)
	r.trustOfPods(kube, old)

	r.apply(r.machine.old, rotation.swap)
	r.check("an administrator of the next authority", servedByAPI(r.kube(next, next), r))
	r.check("an administrator of the old authority", servedByAPI(r.kube(old, next), r))
	if err := servedByAPI(r.kube(old, old), r); err == nil {
		t.Error("the kube-apiserver still shows a certificate of the old authority")
	}
	kube = r.kube(next, next)
	r.followed(kube)
	r.trustOfPods(kube, next)
	r.talosAccountIs(kube, r.machine.next)
	if now := r.clientCertificates(); !slices.EqualFunc(now, founded, bytes.Equal) {
		t.Error("a kubelet has a new client certificate, though its own is accepted")
	}

	r.apply(r.machine.next, rotation.drop)
	r.check("an administrator of the next authority", servedByAPI(r.kube(next, next), r))
	r.check("an administrator of the old authority", refusedByAPI(r.kube(old, next), r))
	r.approve(kube, next) // requested anew
	r.followed(kube)
	for i, cert := range r.clientCertificates() {
		if bytes.Equal(cert, founded[i]) {
			t.Errorf("the kubelet of %s keeps a client certificate that is not accepted", r.nodes[i])
		}
	}
	if now := r.pids(); !maps.Equal(now, pids) {
		t.Errorf("processes of Pods: %v, were %v", now, pids)
	}
	if now := etcdPID(x); now != etcd {
		t.Errorf("etcd's process is %d, was %d", now, etcd)
	}
	if now, err := r.ready(kube); err != nil || !maps.Equal(now, since) {
		t.Errorf("Ready since %v, before since %v: %v", now, since, err)
	}
	pods, err := kube.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				t.Errorf("container %s of Pod %s was restarted %d times", c.Name, p.Name, c.RestartCount)
			}
		}
	}
	kubeconfig, ok, err := x.AdminKubeconfig(1)
	if err != nil || !ok {
		t.Fatalf("the administrator's kubeconfig: %v, %v", ok, err)
	}
	administrator, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r.check("the administrator's kubeconfig", servedByAPI(clientOf(t, administrator), r))

	before, certificates := x.Plane(1), r.clientCertificates()
	applyTo(t, t.Context(), r.talos(r.machine.next, 1), func(c *v1alpha1.Config) { // this one alone
		c.MachineConfig.MachineCA, c.MachineConfig.MachineAcceptedCAs = rotation{r.machine.next,
			r.machine.old}.swap(false)
	})
	r.talosAccountIs(kube, r.machine.old)
	if x.Plane(1) != before {
		t.Error("another authority of the machine API has restarted the kube-apiserver")
	}
	if err := r.talos(r.machine.next, 1).Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "the kube-apiserver after a reboot", func() error {
		if now := x.Plane(1); now == nil || now == before {
			return errors.New(statusOf(t, x, 1).APIServer)
		}
		return servedByAPI(kube, r)
	})
	r.check("an administrator of the old authority", refusedByAPI(r.kube(old, next), r))
	await(t, patience, "the kubelet after a reboot", func() error {
		if st := statusOf(t, x, 1); st.Node == nil || !st.Node.Ready {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if now := r.clientCertificates(); !slices.EqualFunc(now, certificates, bytes.Equal) {
		t.Error("a kubelet has a new client certificate after a reboot")
	}
}

// talosAccount creates a ServiceAccount of talos.dev and waits for its Secret.
func (r *rotating) talosAccount(access *rest.Config) {
	r.Helper()
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		r.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "talos.dev/v1alpha1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "rotated"},
		"spec": map[string]any{"roles": []any{string(role.Reader)}}}}
	await(r, patience, "a ServiceAccount of talos.dev", func() error {
		_, err := objects.Resource(talosServiceAccounts).Namespace("kube-system").Create(r.Context(), o,
			metav1.CreateOptions{})
		return err
	})
	r.talosAccountIs(clientOf(r, access), r.machine.old)
}

// talosAccountIs waits until its talosconfig is of an authority.
func (r *rotating) talosAccountIs(kube kubernetes.Interface, ca *issuer) {
	r.Helper()
	signer, err := ca.GetCert()
	if err != nil {
		r.Fatal(err)
	}
	await(r, patience, "its talosconfig", func() error {
		secret, err := kube.CoreV1().Secrets("kube-system").Get(r.Context(), "rotated", metav1.GetOptions{})
		if err != nil {
			return err
		}
		trusted, cert, err := readTalosconfig(secret.Data["config"])
		if err != nil {
			return err
		}
		if !bytes.Equal(bytes.TrimSpace(trusted), bytes.TrimSpace(ca.Crt)) {
			return errors.New("it trusts another authority")
		}
		return cert.CheckSignatureFrom(signer)
	})
}

// etcdPID is the process of the only etcd member.
func etcdPID(x *Talos) int {
	for _, p := range x.config.Processes.List() {
		if strings.HasSuffix(p.Name, "/etcd") {
			return p.PID
		}
	}
	return 0
}

// certificateOf reads the first certificate of a file.
func certificateOf(path string) (*stdx509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM", path)
	}
	return stdx509.ParseCertificate(block.Bytes)
}
