package caph

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// testWebhooks registers the webhooks and sends what the original refuses.
func (w *harness) testWebhooks(t *testing.T) {
	ctx := t.Context()
	w.registerWebhooks(t)
	must(t, w.Create(ctx, namespace("webhooks")))

	machine := &api.HCloudMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "webhooks", Name: "m"},
		Spec:       api.HCloudMachineSpec{Type: "cx33", ImageName: testImage},
	}
	// The API server learns of the two configurations after they were created, each at a time of its own.
	eventually(t, "the mutating webhook to be called", func(ctx context.Context) error {
		probe := machine.DeepCopy()
		if err := w.Create(ctx, probe, client.DryRunAll); err != nil || probe.Spec.PublicNetwork != nil {
			return err
		}
		return errors.New("publicNetwork is not set")
	})
	must(t, w.Create(ctx, machine))
	if public := machine.Spec.PublicNetwork; public == nil || !ptr.Deref(public.EnableIPv4, false) ||
		!ptr.Deref(public.EnableIPv6, false) {
		t.Errorf("the mutating webhook left publicNetwork as %+v", public)
	}
	machine.Spec.Type = "cx43"
	eventually(t, "the validating webhook to be called", func(ctx context.Context) error {
		if w.Update(ctx, machine.DeepCopy(), client.DryRunAll) == nil {
			return errors.New("another type is not refused")
		}
		return nil
	})
	refused(t, "another type", w.Update(ctx, machine))

	template := &api.HCloudMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "webhooks", Name: "t"},
		Spec:       api.HCloudMachineTemplateSpec{Template: api.HCloudMachineTemplateResource{Spec: machine.Spec}},
	}
	must(t, w.Create(ctx, template))
	template.Labels = map[string]string{"a": "b"}
	must(t, w.Update(ctx, template))
	template.Spec.Template.Spec.ImageName = "other"
	refused(t, "another image in a template", w.Update(ctx, template))

	cluster := func(name string, edit func(*api.HetznerClusterSpec)) *api.HetznerCluster {
		c := &api.HetznerCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "webhooks", Name: name},
			Spec: api.HetznerClusterSpec{
				HCloudNetwork:            api.HCloudNetworkSpec{Enabled: true},
				ControlPlaneRegions:      []string{"nbg1"},
				ControlPlaneEndpoint:     &clusterv1.APIEndpoint{Port: 6443},
				ControlPlaneLoadBalancer: api.LoadBalancerSpec{Enabled: true, Region: "nbg1"},
				HetznerSecret: api.HetznerSecretRef{Name: "hetzner",
					Key: api.HetznerSecretKeyRef{HCloudToken: "hcloud"}},
			},
		}
		edit(&c.Spec)
		return c
	}
	refused(t, "no regions",
		w.Create(ctx, cluster("regions", func(s *api.HetznerClusterSpec) { s.ControlPlaneRegions = []string{} })))
	refused(t, "a load balancer without region",
		w.Create(ctx, cluster("region", func(s *api.HetznerClusterSpec) { s.ControlPlaneLoadBalancer.Region = "" })))
	refused(t, "two zones without network", w.Create(ctx, cluster("zones", func(s *api.HetznerClusterSpec) {
		s.HCloudNetwork.Enabled = false
		s.ControlPlaneRegions = []string{"nbg1", "ash"}
	})))
	must(t, w.Create(ctx, cluster("no-endpoint", func(s *api.HetznerClusterSpec) { s.ControlPlaneEndpoint = nil })))
	fine := cluster("fine", func(*api.HetznerClusterSpec) {})
	must(t, w.Create(ctx, fine))
	fine.Spec.ControlPlaneLoadBalancer.Type = "lb21"
	must(t, w.Update(ctx, fine))
	for what, edit := range map[string]func(*api.HetznerClusterSpec){
		"another network": func(s *api.HetznerClusterSpec) { s.HCloudNetwork.CIDRBlock = "10.1.0.0/16" },
		"another port":    func(s *api.HetznerClusterSpec) { s.ControlPlaneLoadBalancer.Port = 443 },
		"another region":  func(s *api.HetznerClusterSpec) { s.ControlPlaneLoadBalancer.Region = "fsn1" },
	} {
		changed := fine.DeepCopy()
		edit(&changed.Spec)
		refused(t, what, w.Update(ctx, changed))
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("%s: want a refusal, got %v", what, err)
	}
}

// registerWebhooks registers the stand-in's webhooks until the test ends.
func (w *harness) registerWebhooks(t *testing.T) {
	t.Helper()
	clientConfig := func(verb, kind string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(fmt.Sprintf("https://127.0.0.1:%s/%s-infrastructure-cluster-x-k8s-io-v1beta1-%s", w.webhookPort,
				verb, kind)),
			CABundle: w.ca.Cert(),
		}
	}
	rules := func(kind string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{api.GroupVersion.Group},
				APIVersions: []string{"v1beta1"}, Resources: []string{kind + "s"}},
		}}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "caph"}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "caph"}}
	for _, kind := range []string{"hetznercluster", "hcloudmachine", "hcloudmachinetemplate"} {
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: "validation." + kind + ".infrastructure.cluster.x-k8s.io", ClientConfig: clientConfig("validate", kind),
			Rules:       rules(kind),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
		if kind == "hcloudmachinetemplate" {
			continue // the original has no mutating one
		}
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: "mutation." + kind + ".infrastructure.cluster.x-k8s.io", ClientConfig: clientConfig("mutate", kind),
			Rules:       rules(kind),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}
	for _, object := range []client.Object{mutating, validating} {
		must(t, w.Create(t.Context(), object))
		t.Cleanup(func() {
			if err := w.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
}
