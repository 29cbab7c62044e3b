package caph

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

const (
	nodeUserPrefix = "system:node:"
	// requestMaxAge: the original denies older requests.
	requestMaxAge = time.Hour
)

// requestReconciler answers the certificate requests of kubelets in one workload cluster: those of a user
// system:node:<name of an HCloudMachine>, whatever the signer. It approves what names that machine and
// its addresses only, and denies the rest.
type requestReconciler struct {
	target     client.Client // the workload cluster's
	management client.Reader
	namespace  string // the HCloudMachines'
}

// answerRequests runs the controller until ctx ends.
func answerRequests(ctx context.Context, config *rest.Config, management client.Reader, namespace string) error {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // its watches are long
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	r := &requestReconciler{target: mgr.GetClient(), management: management, namespace: namespace}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("certificatesigningrequest").
		// One controller of this name for each workload cluster.
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		For(&certificatesv1.CertificateSigningRequest{}).
		Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// Reconcile answers one request.
func (r *requestReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := r.target.Get(ctx, request.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	name, isNode := strings.CutPrefix(csr.Spec.Username, nodeUserPrefix)
	if !isNode || len(csr.Status.Conditions) > 0 {
		return reconcile.Result{}, nil
	}
	machine := &api.HCloudMachine{}
	if err := r.management.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, machine); err != nil {
		return reconcile.Result{}, fmt.Errorf("HCloudMachine of node %s, which asks for a certificate: %w", name, err)
	}

	answer := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "CSRValidationSucceed", Message: "Validation by cluster-api-provider-hetzner succeeded",
	}
	if err := validateRequest(csr, machine, time.Now()); err != nil {
		answer.Type = certificatesv1.CertificateDenied
		answer.Reason = "CSRValidationFailed"
		answer.Message = fmt.Sprintf("Validation by cluster-api-provider-hetzner failed: %s", err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, answer)
	if err := r.target.SubResource("approval").Update(ctx, csr); err != nil {
		return reconcile.Result{}, fmt.Errorf("answering certificate request %s of node %s (%s): %w", csr.Name, name,
			answer.Type, err)
	}
	ctrl.LoggerFrom(ctx).Info("Answered certificate request", "node", name, "answer", answer.Type, "message",
		answer.Message)
	return reconcile.Result{}, nil
}

// validateRequest returns why a node's certificate request is denied.
func validateRequest(csr *certificatesv1.CertificateSigningRequest, machine *api.HCloudMachine, now time.Time) error {
	if age := now.Sub(csr.CreationTimestamp.Time); age > requestMaxAge {
		return fmt.Errorf("the request is %s old, more than %s", age.Round(time.Second), requestMaxAge)
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("the request is not a PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("the request cannot be parsed: %w", err)
	}
	if want := nodeUserPrefix + machine.Name; request.Subject.CommonName != want {
		return fmt.Errorf("the common name %q is not %q", request.Subject.CommonName, want)
	}
	if !slices.Equal(request.Subject.Organization, []string{"system:nodes"}) {
		return fmt.Errorf("the organization %q is not system:nodes", request.Subject.Organization)
	}
	for _, name := range request.DNSNames {
		if name != machine.Name {
			return fmt.Errorf("the DNS name %q is not %q", name, machine.Name)
		}
	}
	allowed := map[string]bool{}
	for _, address := range machine.Status.Addresses {
		allowed[address.Address] = true
	}
	for _, ip := range request.IPAddresses {
		if !allowed[ip.String()] {
			return fmt.Errorf("the IP address %q is not allowed", ip)
		}
	}
	return nil
}
