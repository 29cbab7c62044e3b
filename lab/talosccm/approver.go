package talosccm

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

const nodeUserPrefix = "system:node:"

// retryLimit is the longest pause before an unanswered request is tried again.
const retryLimit = 30 * time.Second

// approver answers the requests of kubelets for serving certificates. It denies what no kubelet may request, and
// approves a request for a Node and its addresses. A request that does not match its Node stays unanswered, as with the
// original, but is tried again, because a Node's addresses change while its cloud controller manager initialises it.
type approver struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	lister  certificateslisters.CertificateSigningRequestLister
	queue   workqueue.TypedRateLimitingInterface[string]
}

func newApprover(client kubernetes.Interface) *approver {
	factory := informers.NewSharedInformerFactory(client, 0)
	requests := factory.Certificates().V1().CertificateSigningRequests()
	a := &approver{
		client:  client,
		factory: factory,
		lister:  requests.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, retryLimit)),
	}
	// The error is that of an informer that has stopped; this one has not started.
	_, _ = requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
				a.queue.Add(csr.Name)
			}
		},
	})
	return a
}

// run works until ctx ends.
func (a *approver) run(ctx context.Context) {
	defer a.factory.Shutdown()
	a.factory.Start(ctx.Done())
	a.factory.WaitForCacheSync(ctx.Done())
	go func() {
		<-ctx.Done()
		a.queue.ShutDown()
	}()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for a.next(ctx) {
		}
	}, time.Second)
}

func (a *approver) next(ctx context.Context) bool {
	name, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(name)
	if err := a.answer(ctx, name); err != nil {
		klog.ErrorS(err, "Certificate request stays unanswered, looking at it again later", "name", name)
		a.queue.AddRateLimited(name)
		return true
	}
	a.queue.Forget(name)
	return true
}

// answer approves or denies one request, once.
func (a *approver) answer(ctx context.Context, name string) error {
	csr, err := a.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(csr.Status.Conditions) > 0 ||
		csr.Status.Certificate != nil ||
		!strings.HasPrefix(csr.Spec.Username, nodeUserPrefix) {
		return nil
	}
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now(),
		Reason:  "Approved by TalosCloudControllerManager",
		Message: "This CSR was approved by Talos Cloud Controller Manager",
	}
	request, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return err
	}
	if denial := validateRequest(request, csr.Spec.Usages); denial != nil {
		condition.Type = certificatesv1.CertificateDenied
		condition.Reason = "Denied by TalosCloudControllerManager"
		condition.Message = "This CSR was denied by Talos Cloud Controller Manager, Reason: " + denial.Error()
	} else if err := a.checkNode(ctx, request); err != nil {
		return err
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, condition)
	if _, err := a.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, name, csr,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("answering certificate request %s of %s (%s): %w", name, csr.Spec.Username, condition.Type, err)
	}
	klog.InfoS("Answered certificate request", "name", name, "user", csr.Spec.Username, "answer", condition.Type,
		"message", condition.Message)
	return nil
}

// checkNode holds a request against the Node that it names: every address in it must be the Node's.
func (a *approver) checkNode(ctx context.Context, request *x509.CertificateRequest) error {
	if len(request.DNSNames) == 0 {
		return errors.New("the request has no DNS name that identifies its Node")
	}
	node, err := a.client.CoreV1().Nodes().Get(ctx, request.DNSNames[0], metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("getting the Node that a certificate request names: %w", err)
	}
	var addresses []string
	if provided, ok := node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr]; ok {
		addresses = strings.Split(provided, ",")
	}
	for _, address := range node.Status.Addresses {
		addresses = append(addresses, address.Address)
	}
	for _, ip := range request.IPAddresses {
		if !slices.Contains(addresses, ip.String()) {
			return fmt.Errorf("the request names the address %s, which is none of Node %s's: %s", ip, node.Name,
				strings.Join(addresses, ", "))
		}
	}
	return nil
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate request: %w", err)
	}
	return request, nil
}

// validateRequest holds a request against the rules of the signer kubernetes.io/kubelet-serving.
func validateRequest(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case len(request.DNSNames) == 0 && len(request.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(request.EmailAddresses) > 0:
		return errors.New("email subjectAltNames are not allowed")
	case len(request.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !slices.Equal(request.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case !strings.HasPrefix(request.Subject.CommonName, nodeUserPrefix):
		return errors.New("subject common name does not begin with system:node: ")
	}
	// Requests for keys other than RSA do not include key encipherment.
	wanted := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	for _, usage := range usages {
		if usage != certificatesv1.UsageKeyEncipherment && !slices.Contains(wanted, usage) {
			return fmt.Errorf("key usage %q is not allowed", usage)
		}
	}
	for _, usage := range wanted {
		if !slices.Contains(usages, usage) {
			return fmt.Errorf("key usage %q is missing", usage)
		}
	}
	return nil
}
