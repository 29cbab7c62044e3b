package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const (
	// statusEvery is how often the Node's status is compared with what it should be.
	// Changes of the network are reported at once.
	statusEvery = 10 * time.Second
	// reportEvery is how often an unchanged status is written all the same, as kubelets do (nodeStatusReportFrequency).
	reportEvery = 5 * time.Minute
	// registerEvery is the pause between attempts to register: short, because the boot of the node waits for it.
	registerEvery = 250 * time.Millisecond

	providedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	uninitialized  = "node.cloudprovider.kubernetes.io/uninitialized"
)

// register creates the Node, or updates the existing one, and waits until the API server accepts that.
func (k *Kubelet) register(ctx context.Context) error {
	var last error
	for {
		if last = k.tryRegister(ctx); last == nil {
			return nil
		}
		k.log.Debug("the Node is not registered yet", "reason", last)
		if !sleep(ctx, registerEvery) {
			return fmt.Errorf("register node %s: %w", k.cfg.Node, last)
		}
	}
}

func (k *Kubelet) tryRegister(ctx context.Context) error {
	want := k.desiredNode()
	nodes := k.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, k.cfg.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.setNodeStatus(want)
		if node, err = nodes.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create it: %w", err)
		}
		k.log.Info("the Node is registered")
	case err != nil:
		return fmt.Errorf("find it: %w", err)
	default: // of an earlier kubelet: a Node that exists keeps its taints
		changed := node.DeepCopy()
		changed.Labels = merge(changed.Labels, want.Labels)
		changed.Annotations = merge(changed.Annotations, want.Annotations)
		if !equality.Semantic.DeepEqual(node, changed) {
			if node, err = nodes.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("bring its labels up to date: %w", err)
			}
		}
	}
	k.node.Store(node)
	return k.labelAsAdmin(ctx)
}

// labelAsAdmin sets the labels of the Node that a kubelet may not set itself.
func (k *Kubelet) labelAsAdmin(ctx context.Context) error {
	labels := maps.Clone(k.cfg.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return ownLabel(key) })
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return fmt.Errorf("encode its labels: %w", err)
	}
	if _, err := k.admin.CoreV1().Nodes().Patch(ctx, k.cfg.Node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label it: %w", err)
	}
	return nil
}

func (k *Kubelet) desiredNode() *corev1.Node {
	labels := maps.Clone(k.cfg.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !ownLabel(key) })
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.cfg.Node,
			Labels: merge(labels, map[string]string{
				corev1.LabelHostname: k.cfg.Node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: k.cfg.Architecture,
			}),
			Annotations: maps.Clone(k.cfg.Annotations),
		},
		Spec: corev1.NodeSpec{ProviderID: k.cfg.ProviderID, Taints: slices.Clone(k.cfg.Taints)},
	}
	if k.cfg.ExternalCloudProvider {
		node.Annotations = merge(node.Annotations, map[string]string{providedNodeIP: k.cfg.InternalIP})
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return node
}

// keepStatus writes the Node's status when it changes and every reportEvery, until ctx is done.
func (k *Kubelet) keepStatus(ctx context.Context) {
	retry := toAPI()
	for {
		changed := k.changed.next()
		wait := statusEvery
		if err := k.reportStatus(ctx); err == nil {
			retry.reset()
		} else if ctx.Err() == nil {
			wait = retry.next()
			k.log.Warn("the Node's status was not written", "reason", err, "again", wait)
		}
		if !sleepUntil(ctx, wait, changed) {
			return
		}
	}
}

func (k *Kubelet) reportStatus(ctx context.Context) error {
	node, err := k.client.CoreV1().Nodes().Get(ctx, k.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", k.cfg.Node, err)
	}
	want := node.DeepCopy()
	k.setNodeStatus(want)
	due := true
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			due = time.Since(c.LastHeartbeatTime.Time) >= reportEvery
		}
	}
	if !due && equality.Semantic.DeepEqual(withoutHeartbeats(node.Status), withoutHeartbeats(want.Status)) {
		k.node.Store(node)
		return nil
	}
	patch, err := statusPatch(node.UID, node.Status, want.Status, corev1.Node{})
	if err != nil {
		return err
	}
	node, err = k.client.CoreV1().Nodes().Patch(ctx, k.cfg.Node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write node %s: %w", k.cfg.Node, err)
	}
	k.node.Store(node)
	return nil
}

func withoutHeartbeats(s corev1.NodeStatus) corev1.NodeStatus {
	s = *s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return s
}

// setNodeStatus updates the status. It does not change what others set.
func (k *Kubelet) setNodeStatus(node *corev1.Node) {
	s := &node.Status
	s.Capacity, s.Allocatable = k.cfg.Capacity, k.cfg.Capacity
	s.DaemonEndpoints.KubeletEndpoint.Port = Port
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: k.machineID, SystemUUID: k.machineID, BootID: k.bootID,
		KernelVersion: "slipway-lab", OSImage: k.cfg.OSImage, ContainerRuntimeVersion: runtimeVersion,
		KubeletVersion: k.cfg.KubeletVersion, KubeProxyVersion: k.cfg.KubeletVersion,
		OperatingSystem: "linux", Architecture: k.cfg.Architecture,
	}
	// After a cloud provider has reported the addresses, they belong to it.
	if !k.cfg.ExternalCloudProvider || node.Spec.ProviderID == "" {
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.cfg.InternalIP}}
		if k.cfg.ExternalIP != "" && !k.cfg.ExternalCloudProvider {
			s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: k.cfg.ExternalIP})
		}
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.cfg.Node})
	}
	now := metav1.Now()
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		k.readyCondition(),
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
	}
}

// runtimeVersion is not the version of any real container runtime.
const runtimeVersion = "slipway-lab://1.0.0"

func (k *Kubelet) readyCondition() corev1.NodeCondition {
	if k.networkReady() {
		return corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status",
		}
	}
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
		Message: "container runtime network not ready: " + networkNotReady,
	}
}

// networkNotReady is the message of a kubelet before its CNI plugin is configured.
const networkNotReady = "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni " +
	"plugin not initialized"

// networkReady says whether Pods that are not on the host's network may start.
func (k *Kubelet) networkReady() bool {
	return k.cfg.Network == NetworkFromStart || k.network.Load()
}

// networkFile takes the place of the configuration file that a CNI agent writes on the host.
func (k *Kubelet) networkFile() string { return filepath.Join(k.cfg.Dir, "cni-configured") }

// agentReady records that a CNI agent on this Node is ready.
func (k *Kubelet) agentReady(pod string) {
	if k.networkReady() {
		return
	}
	if err := os.WriteFile(k.networkFile(), []byte(pod+"\n"), 0o600); err != nil {
		k.log.Error("the network's mark was not written: after a restart the Node waits for its agent again", "reason", err)
	}
	k.network.Store(true)
	k.log.Info("the Node has its network", "agent", pod)
	k.changed.raise()
}

// ownLabel says whether a kubelet may set a label of its Node: the admission plugin NodeRestriction refuses the others.
func ownLabel(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion:
		return true
	}
	domain, _, named := strings.Cut(key, "/")
	if !named {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	switch {
	case within("node-restriction.kubernetes.io"):
		return false
	case within("kubelet.kubernetes.io"), within("node.kubernetes.io"):
		return true
	}
	return !within("kubernetes.io") && !within("k8s.io")
}

// statusPatch returns the change from one status to another as a patch that applies only to the object it was made for.
func statusPatch[S any](uid types.UID, before, after S, object any) ([]byte, error) {
	encode := func(status S) ([]byte, error) {
		return json.Marshal(map[string]any{"status": status})
	}
	from, err := encode(before)
	if err != nil {
		return nil, fmt.Errorf("encode the present status: %w", err)
	}
	to, err := encode(after)
	if err != nil {
		return nil, fmt.Errorf("encode the new status: %w", err)
	}
	change, err := strategicpatch.CreateTwoWayMergePatch(from, to, object)
	if err != nil {
		return nil, fmt.Errorf("compare the present status with the new one: %w", err)
	}
	if string(change) == "{}" {
		return nil, nil
	}
	var patch map[string]any
	if err := json.Unmarshal(change, &patch); err != nil {
		return nil, fmt.Errorf("read the status' change: %w", err)
	}
	patch["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(patch)
}

func merge[V any](into, from map[string]V) map[string]V {
	if into == nil {
		into = map[string]V{}
	}
	maps.Copy(into, from)
	return into
}

// sleep waits, and is false where ctx is done.
func sleep(ctx context.Context, d time.Duration) bool { return sleepUntil(ctx, d, nil) }

// sleepUntil is sleep that ends at a change.
func sleepUntil(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
