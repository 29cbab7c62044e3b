package canary

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

const (
	probeName = "slipway-canary-node"
	// probeLabel is on the Pod of a probe, with the release as its value.
	probeLabel = "slipway.dev/canary-node"

	// A connection is tried every few seconds; several in a row have to succeed, as what breaks a node's network may take
	// effect a moment after the agent is ready.
	probeEvery, probeTimeout, probeSuccesses = 2, 2, 3
)

// target is what a probe connects to.
type target struct {
	name string // of the container whose probe connects
	what string // for people
	host string
	port int32
}

func (t target) String() string {
	return t.what + " " + net.JoinHostPort(t.host, strconv.Itoa(int(t.port)))
}

// targets are the addresses of the Kubernetes API that a node uses: the one that the agent's values name, which is
// KubePrism's on Talos, and the ClusterIP of the Service kubernetes.
func (u Upgrade) targets(ctx context.Context) ([]target, error) {
	values, err := u.Values()
	if err != nil {
		return nil, err
	}
	var all []target
	host, _ := values["k8sServiceHost"].(string)
	port, err := strconv.Atoi(fmt.Sprint(values["k8sServicePort"]))
	if host == "localhost" { // KubePrism listens on IPv4
		host = "127.0.0.1"
	}
	if err == nil && host != "" && host != "auto" {
		what := "the API server of k8sServiceHost"
		if host == "127.0.0.1" {
			what = "KubePrism"
		}
		all = append(all, target{"api-server", what, host, int32(port)})
	}
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := u.Cluster.Get(ctx, key, service); err != nil {
		return nil, fmt.Errorf("get Service %s: %w", key, err)
	}
	if len(service.Spec.Ports) == 0 {
		return nil, fmt.Errorf("Service %s has no port", key)
	}
	return append(all, target{"cluster-ip", "the ClusterIP of Service kubernetes", service.Spec.ClusterIP,
		service.Spec.Ports[0].Port}), nil
}

// probe has the kubelet of a node connect to the targets from the host's network, and waits until it succeeds and the
// node is Ready with a Lease that is renewed. Its Pod is removed in any case.
//
// The kubelet makes the connections of readiness probes that name a host from its own network, the host's, so that the
// containers need no program that connects. The Pod has a network of its own, which the new agent has to set up.
func (u Upgrade) probe(ctx context.Context, say flow.Say, node string) (targets []target, err error) {
	var pod *corev1.Pod
	err = u.until(ctx, say, "the probe of node "+node+" to be created", func(ctx context.Context) (string, error) {
		if targets, err = u.targets(ctx); err != nil {
			return "", err
		}
		have, err := u.agents(ctx)
		if err != nil {
			return "", err
		}
		image := u.image(have.pods[node])
		if image == "" {
			return "its agent has no container " + u.Container, nil
		}
		pod = u.probePod(node, image, targets)
		return "", u.create(ctx, pod)
	})
	if err != nil {
		return targets, err
	}
	defer func() { // also when the run is interrupted
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait.LookWithin)
		defer cancel()
		if removed := u.remove(ctx, pod); removed != nil {
			say("note: %v: the next run removes it", removed)
		}
	}()
	say("probing from the host's network of node %s: %s", node, sentence(targets))
	renewed := &renewal{}
	return targets, u.until(ctx, say, "the probe of node "+node, func(ctx context.Context) (string, error) {
		return u.look(ctx, node, pod, targets, renewed)
	})
}

// create makes the Pod, or finds it where an earlier reply was lost.
func (u Upgrade) create(ctx context.Context, pod *corev1.Pod) error {
	err := u.Cluster.Create(ctx, pod)
	switch {
	case apierrors.IsAlreadyExists(err):
		return u.Cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	case err != nil && !kube.Unwell(err):
		return wait.Final(fmt.Errorf("create Pod %s, the probe of node %s: %w", pod.Name, pod.Spec.NodeName, err))
	}
	return err
}

// image is the agent's: the node has it, so that the probe pulls none.
func (u Upgrade) image(agent corev1.Pod) string {
	for _, c := range agent.Spec.Containers {
		if c.Name == u.Container {
			return c.Image
		}
	}
	return ""
}

// probePod is the Pod whose readiness is that of the targets. Its containers sleep: the agent's image has a shell's
// programs, which its init containers use, too.
func (u Upgrade) probePod(node, image string, targets []target) *corev1.Pod {
	yes, no, unprivileged := true, false, int64(65534)
	grace, longest := int64(1), int64(2*u.Within/time.Second) // should no run be there to remove it
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: probeName, Labels: map[string]string{
			probeLabel: u.Release, "app.kubernetes.io/managed-by": kube.FieldManager}},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &longest,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &unprivileged,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
	for _, t := range targets {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: t.name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "infinity"},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: t.host,
					Port: intstr.FromInt32(t.port)}},
				PeriodSeconds: probeEvery, TimeoutSeconds: probeTimeout, SuccessThreshold: probeSuccesses, FailureThreshold: 1,
			},
		})
	}
	return pod
}

// look says what of a probe does not succeed yet.
func (u Upgrade) look(ctx context.Context, node string, made *corev1.Pod, targets []target, r *renewal) (string,
	error) {
	p := &corev1.Pod{}
	err := u.Cluster.Get(ctx, client.ObjectKeyFromObject(made), p)
	if kube.Absent(err) || err == nil && p.UID != made.UID {
		return "", wait.Final(fmt.Errorf("Pod %s, the probe of node %s, was removed by another process", made.Name, node))
	}
	if err != nil {
		return "", fmt.Errorf("get Pod %s: %w", made.Name, err)
	}
	if p.Status.Phase == corev1.PodFailed {
		return "", wait.Final(fmt.Errorf("Pod %s, the probe of node %s, failed: %s %s", made.Name, node, p.Status.Reason,
			p.Status.Message))
	}
	n, err := u.node(ctx, node)
	if err != nil {
		return "", err
	}
	var missing []string
	if !podReady(*p) {
		if missing, err = u.unanswered(ctx, p, targets); err != nil {
			return "", err
		}
	}
	lease, err := u.lease(ctx, node)
	if err != nil {
		return "", err
	}
	if missing = append(missing, unready(n)); wait.Sentences(missing...) == "" {
		missing = append(missing, r.missing(lease))
	}
	return wait.Sentences(missing...), nil
}

// unanswered are the targets to which the kubelet has not connected, with what it reports.
func (u Upgrade) unanswered(ctx context.Context, p *corev1.Pod, targets []target) (missing []string, err error) {
	if why := kube.PodTrouble(p); why != "" {
		return []string{why}, nil
	}
	events := &corev1.EventList{}
	if err := u.Cluster.List(ctx, events, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("list the events of namespace %s: %w", p.Namespace, err)
	}
	for _, t := range targets {
		i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == t.name })
		switch {
		case i < 0 || p.Status.ContainerStatuses[i].State.Running == nil:
			return []string{cmp.Or(newest(events.Items, p, ""), "Pod "+p.Name+" does not run yet")}, nil
		case !p.Status.ContainerStatuses[i].Ready:
			missing = append(missing, fmt.Sprintf("%s: %s", t, cmp.Or(newest(events.Items, p, t.name), "no answer yet")))
		}
	}
	return missing, nil
}

// newest is the newest warning about a Pod, or about one of its containers.
func newest(events []corev1.Event, p *corev1.Pod, container string) (message string) {
	var last time.Time
	for _, e := range events {
		at := e.LastTimestamp.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if e.Type == corev1.EventTypeWarning && e.InvolvedObject.UID == p.UID && !at.Before(last) &&
			(container == "" || e.InvolvedObject.FieldPath == "spec.containers{"+container+"}") {
			last, message = at, e.Message
		}
	}
	return message
}

func (u Upgrade) lease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	err := u.Cluster.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, l)
	if err != nil && !kube.Absent(err) {
		return nil, fmt.Errorf("get the Lease of node %s: %w", node, err)
	}
	return l, nil
}

// renewal is the Lease of a node as it was when everything else had succeeded for the first time. The kubelet renews it
// through KubePrism: a renewal since then is one with the new agent. The times are compared with each other alone, as
// the node's clock may be another.
type renewal struct {
	seen bool
	at   metav1.MicroTime
}

func (r *renewal) missing(l *coordinationv1.Lease) string {
	var at metav1.MicroTime
	if l.Spec.RenewTime != nil {
		at = *l.Spec.RenewTime
	}
	if !r.seen {
		r.seen, r.at = true, at
	}
	if at.After(r.at.Time) {
		return ""
	}
	return "its kubelet has not renewed the node's Lease since the probe succeeded"
}

// removeProbes removes what an earlier run left.
func (u Upgrade) removeProbes(ctx context.Context, say flow.Say) error {
	return u.until(ctx, say, "the probe of an earlier run to be removed", func(ctx context.Context) (string, error) {
		pods := &corev1.PodList{}
		err := u.Cluster.List(ctx, pods, client.InNamespace(u.Namespace), client.MatchingLabels{probeLabel: u.Release})
		if err != nil {
			return "", fmt.Errorf("list the probes of canary nodes: %w", err)
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp != nil {
				continue
			}
			say("removing Pod %s on node %s, the probe of an earlier run", p.Name, p.Spec.NodeName)
			if err := u.remove(ctx, &p); err != nil {
				return "", err
			}
		}
		if len(pods.Items) > 0 {
			return "Pod " + pods.Items[0].Name + " has not ended", nil
		}
		return "", nil
	})
}

func (u Upgrade) remove(ctx context.Context, p *corev1.Pod) error {
	if err := u.Cluster.Delete(ctx, p, client.Preconditions{UID: &p.UID}); err != nil && !kube.Absent(err) {
		return fmt.Errorf("delete Pod %s: %w", p.Name, err)
	}
	return nil
}
