package repository

import (
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"
)

// workload is what testdata/workloads.yaml holds of a manifest or a chart.
type workload struct {
	// Values are those that the chart was rendered with, as the release of its own name in kube-system.
	Values string `json:"values,omitempty"`
	// Objects are the kinds and names of all objects.
	Objects []string `json:"objects"`
	// Pods are those of Deployments and DaemonSets, by the name of these.
	Pods map[string]corev1.PodSpec `json:"pods"`
	// Ports are those of Services, by the name of these.
	Ports map[string][]corev1.ServicePort `json:"ports,omitempty"`
	// Webhooks are the names, each with its path and what leads to a call.
	Webhooks []string `json:"webhooks,omitempty"`
}

// workloadOf reads what a workload holds out of rendered objects.
func workloadOf(t *testing.T, objects []unstructured.Unstructured) workload {
	t.Helper()
	w := workload{Pods: pods(t, objects), Ports: map[string][]corev1.ServicePort{}}
	for _, o := range objects {
		w.Objects = append(w.Objects, o.GetKind()+" "+o.GetName())
		switch o.GetKind() {
		case "Service":
			w.Ports[o.GetName()] = typed[corev1.Service](t, o).Spec.Ports
		case "MutatingWebhookConfiguration":
			for _, hook := range typed[admissionv1.MutatingWebhookConfiguration](t, o).Webhooks {
				w.Webhooks = append(w.Webhooks, webhook(hook.Name, hook.ClientConfig, hook.Rules))
			}
		case "ValidatingWebhookConfiguration":
			for _, hook := range typed[admissionv1.ValidatingWebhookConfiguration](t, o).Webhooks {
				w.Webhooks = append(w.Webhooks, webhook(hook.Name, hook.ClientConfig, hook.Rules))
			}
		}
	}
	slices.Sort(w.Objects)
	slices.Sort(w.Webhooks)
	if len(w.Ports) == 0 {
		w.Ports = nil
	}
	for name, pod := range w.Pods {
		pod.Tolerations = slices.Clone(pod.Tolerations)
		slices.SortFunc(pod.Tolerations, func(a, b corev1.Toleration) int { return strings.Compare(a.Key, b.Key) })
		for i := range pod.Tolerations { // the API server's default
			if pod.Tolerations[i].Operator == "" && pod.Tolerations[i].Value == "" {
				pod.Tolerations[i].Operator = corev1.TolerationOpEqual
			}
		}
		w.Pods[name] = pod
	}
	return w
}

func webhook(name string, config admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) string {
	line := name + ": " + *config.Service.Path
	for _, r := range rules {
		line += " " + strings.Join(r.Resources, " ")
		for _, operation := range r.Operations {
			line += " " + string(operation)
		}
	}
	return line
}

// TestWorkloadsAreTheOriginals: a stand-in that is installed in another way than the original can hide what the original
// needs: an environment variable, a mount, a port, a name.
func TestWorkloadsAreTheOriginals(t *testing.T) {
	data, err := os.ReadFile("testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var originals map[string]workload
	if err := yaml.UnmarshalStrict(data, &originals); err != nil {
		t.Fatal(err)
	}
	if len(originals) != 5 {
		t.Errorf("%d originals", len(originals))
	}
	for of, want := range originals {
		t.Run(of, func(t *testing.T) {
			var objects []unstructured.Unstructured
			if version, ok := strings.CutPrefix(of, "caph "); ok {
				manifest, _, err := CAPHManifest(version)
				if err != nil {
					t.Fatal(err)
				}
				if objects, err = utilyaml.ToUnstructured(manifest); err != nil {
					t.Fatal(err)
				}
				objects = slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool {
					return o.GetKind() == "CustomResourceDefinition" // TestCRDs
				})
			} else {
				chart, _, _ := strings.Cut(of, " ")
				objects = mustRender(t, chart, chart, want.Values)
			}
			got := workloadOf(t, objects)
			got.Values = want.Values
			if g, w := mustYAML(t, got), mustYAML(t, want); g != w {
				t.Errorf("it is installed as\n%s\nand the original as\n%s", g, w)
			}
		})
	}
}

func mustYAML(t *testing.T, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
