package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// TestCluster runs a Node against a real control plane: scheduler, Deployment, DaemonSet and Job controllers, node
// authorizer and NodeRestriction, bound tokens, a webhook through egress, a rotated certificate, deletion.
func TestCluster(t *testing.T) {
	const node, ns = "node-1", "default"
	registry := NewRegistry()
	services := egress.NewServices("test", registry, nil)
	proxy := egress.New(services, nil)
	socket := filepath.Join(shortDir(t), "egress.sock")
	listener, err := egress.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	inBackground(t, cancel, func() error { return proxy.Serve(ctx, listener) })

	var address string
	control, adminConfig := planetest.Start(t, func(c *plane.SingleConfig) { c.EgressSocket, address = socket, c.Address })
	admin := kubernetes.NewForConfigOrDie(adminConfig)
	inBackground(t, cancel, func() error { return services.Watch(ctx, admin) })
	kubeconfig, err := control.Kubeconfig("system:node:"+node, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	program := player(t, "example.org/hook", "-say=the hook speaks", "-address=127.0.0.1:{port:9443}",
		"-certs={dir:/certs}", "-ignored={kubeconfig}")
	k, err := New(Config{
		Cluster: "test", Node: node, InternalIP: address, KubeletVersion: "v1.32.3", Client: client, Admin: adminConfig,
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": "", "example.org/own": "yes"},
		Dir:    filepath.Join(t.TempDir(), "kubelet"), Processes: planetest.Supervisor(t), Registry: registry,
		Programs: []Program{program}, Network: NetworkFromAgent, ServingCSR: true, Latency: FastLatency(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, cancel, func() error { return k.Run(ctx) })

	// The Node: registered, labelled also with what a kubelet may not set, not ready without an agent.
	var registered *corev1.Node
	eventually(t, "the Node is registered and NotReady", func() (string, bool) {
		registered, err = admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		_, labelled := registered.Labels["node-role.kubernetes.io/control-plane"]
		return fmt.Sprint(registered.Labels, nodeReady(registered)), labelled &&
			nodeReady(registered) == "False KubeletNotReady"
	})
	if registered.Labels["example.org/own"] != "yes" {
		t.Errorf("labels %v lack the kubelet's own", registered.Labels)
	}

	// A Deployment whose process serves a webhook. It waits for the network first.
	authority, err := pki.NewCA("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	issue := func() map[string][]byte {
		pair, err := authority.Issue(pki.Request{CommonName: "hook", Hosts: []string{"hook.default.svc"}})
		if err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key}
	}
	deployment, service := hook()
	create(t, func() error {
		_, err := admin.AppsV1().Deployments(ns).Create(ctx, deployment, metav1.CreateOptions{})
		return err
	})
	create(t, func() error {
		_, err := admin.CoreV1().Services(ns).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
	eventually(t, "the hook's Pod waits for the network", func() (string, bool) {
		got := waitingReason(t, admin, "app=hook")
		return got, strings.Contains(got, "ContainerCreating: network is not ready")
	})
	create(t, func() error {
		_, err := admin.AppsV1().DaemonSets(ns).Create(ctx, agent(), metav1.CreateOptions{})
		return err
	})
	eventually(t, "the agent makes the Node Ready", func() (string, bool) {
		n, err := admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return nodeReady(n), nodeReady(n) == "True KubeletReady"
	})
	eventually(t, "the hook's Pod waits for its Secret", func() (string, bool) {
		got := waitingReason(t, admin, "app=hook")
		return got, strings.Contains(got,
			`ContainerCreating: MountVolume.SetUp failed for volume "certs" : secret "hook-certs" not found`)
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook-certs"}, Type: corev1.SecretTypeTLS, Data: issue()}
	create(t, func() error {
		_, err := admin.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{})
		return err
	})
	eventually(t, "the Deployment is available", func() (string, bool) {
		d, err := admin.AppsV1().Deployments(ns).Get(ctx, "hook", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v; %s", d.Status, waitingReason(t, admin, "app=hook")), d.Status.AvailableReplicas == 1
	})

	// The apiserver calls the webhook through egress.
	create(t, func() error {
		_, err := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, webhook(authority.Cert()),
			metav1.CreateOptions{})
		return err
	})
	forbid := func() error {
		_, err := admin.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Data: map[string]string{"forbidden": ""},
		}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "the webhook refuses", func() (string, bool) {
		err := forbid()
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "the player refuses")
	})

	// A rotated certificate reaches the process's folder.
	pod := podOf(t, admin, "app=hook")
	folder := filepath.Join(k.podsDir(), string(pod.UID), "volumes", "certs")
	rotated := issue()
	secret, err = admin.CoreV1().Secrets(ns).Get(ctx, "hook-certs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = rotated
	if _, err := admin.CoreV1().Secrets(ns).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rotated certificate is in the folder", func() (string, bool) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		if err != nil {
			return err.Error(), false
		}
		want, err := tls.X509KeyPair(rotated["tls.crt"], rotated["tls.key"])
		return fmt.Sprint(err), err == nil && pair.Leaf.Equal(want.Leaf)
	})

	// The process has its Pod's identity, and only the rights of its service account.
	own, err := clientcmd.BuildConfigFromFlags("", filepath.Join(k.podsDir(), string(pod.UID), "volumes", identityVolume,
		"kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(own).CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:default") {
		t.Errorf("the Pod's kubeconfig lists Secrets: %v; want Forbidden for its service account", err)
	}

	// A Job of an unknown image completes.
	create(t, func() error {
		_, err := admin.BatchV1().Jobs(ns).Create(ctx, job(), metav1.CreateOptions{})
		return err
	})
	eventually(t, "the Job completes", func() (string, bool) {
		j, err := admin.BatchV1().Jobs(ns).Get(ctx, "once", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v", j.Status), j.Status.Succeeded == 1
	})

	// Its log cannot be read before the kubelet has a serving certificate.
	if said, err := podLogs(t, admin, pod.Name, &corev1.PodLogOptions{Container: "hook"}); err == nil {
		t.Errorf("without a serving certificate the kubelet serves %q", said)
	}
	serving(t, admin, k)
	logs(t, admin, k, pod.Name)

	// Deletion: the Pod goes, its process and its port with it; the webhook's call says why it fails.
	addr, ok := registry.Address("test", ns, pod.Name, 9443)
	if !ok {
		t.Fatal("the hook's port is not registered")
	}
	if err := admin.AppsV1().Deployments(ns).Delete(ctx, "hook", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod is gone", func() (string, bool) {
		_, err := admin.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Errorf("something still listens on %s", addr)
	}
	eventually(t, "the call says that the Service has no Pod", func() (string, bool) {
		err := forbid()
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "Service default/hook has no Pod")
	})
	if stats := proxy.Stats(); stats.Tunnels == 0 || len(stats.Refusals) == 0 {
		t.Errorf("egress counted %+v; want tunnels and refusals", stats)
	}
}

// serving approves the kubelet's certificate request as talos-ccm does, and checks the certificate.
func serving(t *testing.T, admin kubernetes.Interface, k *Kubelet) {
	t.Helper()
	requests := admin.CertificatesV1().CertificateSigningRequests()
	var request *certificatesv1.CertificateSigningRequest
	eventually(t, "the kubelet asks for a serving certificate", func() (string, bool) {
		list, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return fmt.Sprint(err), false
		}
		request = &list.Items[0]
		return "", true
	})
	if request.Spec.SignerName != certificatesv1.KubeletServingSignerName ||
		request.Spec.Username != "system:node:node-1" {
		t.Errorf("request to %s by %s", request.Spec.SignerName, request.Spec.Username)
	}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	if _, err := requests.UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the serving certificate is stored", func() (string, bool) {
		return k.Status().Serving, strings.HasPrefix(k.Status().Serving, "issued by")
	})
	pair, err := tls.LoadX509KeyPair(filepath.Join(k.pkiDir(), "kubelet-serving.crt"),
		filepath.Join(k.pkiDir(), "kubelet-serving.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	if err := pair.Leaf.VerifyHostname(k.cfg.InternalIP); err != nil {
		t.Error(err)
	}
}

// waitingReason returns the reason of the first waiting container of the first Pod.
func waitingReason(t *testing.T, admin kubernetes.Interface, selector string) string {
	t.Helper()
	list, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil {
				return w.Reason + ": " + w.Message
			}
		}
	}
	return ""
}

func podOf(t *testing.T, admin kubernetes.Interface, selector string) *corev1.Pod {
	t.Helper()
	list, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("Pods of %s: %v, %v; want one", selector, list, err)
	}
	return &list.Items[0]
}

func nodeReady(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func create(t *testing.T, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until the answer is yes; a failure prints the last answer.
func eventually(t testing.TB, what string, ask func() (seen string, ok bool)) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for {
		seen, ok := ask()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 40 s; last seen: %s", what, seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inBackground runs until the test's end, and reports an error as one of the test.
func inBackground(t testing.TB, cancel context.CancelFunc, run func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// shortDir is a folder whose path leaves room for a Unix socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
