package kubelet

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func hook() (*appsv1.Deployment, *corev1.Service) {
	labels := map[string]string{"app": "hook"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "hook"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		// Bound to a Node that is not ready, it has to wait for the network.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes: []corev1.Volume{{Name: "certs", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "hook-certs"},
		}}},
		Containers: []corev1.Container{
			{
				Name: "hook", Image: "example.org/hook:v1", Command: []string{"/hook"},
				Ports:        []corev1.ContainerPort{{Name: "webhook", ContainerPort: 9443}},
				VolumeMounts: []corev1.VolumeMount{{Name: "certs", MountPath: "/certs", ReadOnly: true}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: "/readyz", Port: intstr.FromString("webhook"), Scheme: corev1.URISchemeHTTPS,
				}}},
			},
			{Name: "beside", Image: "example.org/unknown:v1"},
		},
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook"}}
	s.Spec.Selector = labels
	s.Spec.Ports = []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromString("webhook")}}
	return d, s
}

// agent is a stand-in for the network agent of a node.
func agent() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{
		HostNetwork: true,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes: []corev1.Volume{{Name: "cni", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"},
		}}},
		InitContainers: []corev1.Container{{Name: "clean", Image: "example.org/agent:v1"}},
		Containers: []corev1.Container{{
			Name: "agent", Image: "example.org/agent:v1",
			VolumeMounts: []corev1.VolumeMount{{Name: "cni", MountPath: "/host/etc/cni/net.d"}},
		}},
	}
	return d
}

func job() *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "once", Image: "example.org/unknown:v1"}},
	}
	return j
}

func webhook(authority []byte) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hook.example.org", AdmissionReviewVersions: []string{"v1"},
			SideEffects:   ptr.To(admissionv1.SideEffectClassNone),
			FailurePolicy: ptr.To(admissionv1.Fail),
			ClientConfig: admissionv1.WebhookClientConfig{
				CABundle: authority,
				Service:  &admissionv1.ServiceReference{Namespace: "default", Name: "hook", Path: ptr.To("/validate")},
			},
			// Only what the test creates, not what the control plane creates.
			MatchConditions: []admissionv1.MatchCondition{{Name: "probes",
				Expression: "object.metadata.generateName == 'probe-'"}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}},
			}},
		}},
	}
}
