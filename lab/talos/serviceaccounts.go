package talos

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	siderox509 "github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// serviceAccountLife and serviceAccountRenewal are Talos's: how long the certificate in a Secret is good for, and
	// how long before its end it is replaced.
	serviceAccountLife    = 6 * time.Hour
	serviceAccountRenewal = time.Hour
	// serviceAccountResync is how often all are reconciled, whether they change or not.
	serviceAccountResync = 10 * time.Minute
	// serviceAccountPause is the time before the watch is begun again after it failed.
	serviceAccountPause = time.Second
)

var (
	talosServiceAccountKind = schema.GroupVersionKind{Group: constants.ServiceAccountResourceGroup,
		Version: constants.ServiceAccountResourceVersion, Kind: constants.ServiceAccountResourceKind}
	talosServiceAccounts = talosServiceAccountKind.GroupVersion().WithResource(constants.ServiceAccountResourcePlural)
)

// serviceAccounts gives Pods access to the machine API: for each ServiceAccount of talos.dev a Secret of its name with
// a talosconfig, if the machine configuration allows its namespace and its roles.
type serviceAccounts struct {
	authority  *watched[authorities]
	roles      []string // allowed
	namespaces []string // allowed
	endpoints  func() []string
	objects    dynamic.NamespaceableResourceInterface
	secrets    kubernetes.Interface
}

// serveServiceAccounts runs until ctx is done, if the configuration enables it.
func (y *system) serveServiceAccounts(ctx context.Context, config *rest.Config) {
	access := y.config.Machine().Features().KubernetesTalosAPIAccess()
	if !access.Enabled() {
		return
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		y.note("talos.dev service accounts", err.Error())
		return
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		y.note("talos.dev service accounts", err.Error())
		return
	}
	s := &serviceAccounts{
		authority: y.authorities,
		roles:     access.AllowedRoles(), namespaces: access.AllowedKubernetesNamespaces(),
		// A real one names the Service "talos", which has no endpoints in a lab: here it names the server.
		endpoints: func() []string {
			addrs, _ := y.server.addresses.get()
			return []string{addrs[0].String()}
		},
		objects: objects.Resource(talosServiceAccounts), secrets: client,
	}
	for ctx.Err() == nil {
		err := s.follow(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case apierrors.IsNotFound(err): // its definition is on its way
		default:
			y.log.Warn("the service accounts of talos.dev are looked at again", "reason", err)
		}
		sleep(ctx, serviceAccountPause)
	}
}

// follow reconciles every Secret, and then those of changed accounts, until the next resync or another authority.
func (s *serviceAccounts) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serviceAccountResync)
	defer cancel()
	used, _ := s.authority.get()
	go func() {
		others := func(now authorities) bool { return !now.machine.equal(used.machine) }
		if _, err := s.authority.await(ctx, others); err == nil {
			cancel()
		}
	}()
	list, err := s.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := s.ensure(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	changes, err := s.objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		switch o := change.Object.(type) {
		case *unstructured.Unstructured:
			if change.Type == watch.Added || change.Type == watch.Modified {
				if err := s.ensure(ctx, o); err != nil {
					return err
				}
			}
		case *metav1.Status:
			return apierrors.FromObject(o)
		}
	}
	return nil
}

// ensure reconciles the Secret of one ServiceAccount, or writes to its status why it has none.
func (s *serviceAccounts) ensure(ctx context.Context, account *unstructured.Unstructured) error {
	roles, refusal := s.judge(account)
	if refusal == "" {
		var err error
		if refusal, err = s.ensureSecret(ctx, account, roles); err != nil {
			return fmt.Errorf("Secret of ServiceAccount %s/%s: %w", account.GetNamespace(), account.GetName(), err)
		}
	}
	if was, _, _ := unstructured.NestedString(account.Object, "status", "failureReason"); was == refusal {
		return nil
	}
	account = account.DeepCopy()
	unstructured.RemoveNestedField(account.Object, "status", "failureReason")
	if refusal != "" {
		if err := unstructured.SetNestedField(account.Object, refusal, "status", "failureReason"); err != nil {
			return err
		}
	}
	_, err := s.objects.Namespace(account.GetNamespace()).Update(ctx, account, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // another server, or its owner, was first
		return nil
	}
	return err
}

// judge returns the roles that an account requests, or why it gets none.
func (s *serviceAccounts) judge(account *unstructured.Unstructured) (roles []string, refusal string) {
	roles, found, err := unstructured.NestedStringSlice(account.Object, "spec", "roles")
	if err != nil || !found {
		return nil, "Roles not found"
	}
	if !slices.Contains(s.namespaces, account.GetNamespace()) {
		return nil, "Namespace is not allowed: " + account.GetNamespace()
	}
	refused := slices.DeleteFunc(slices.Clone(roles), func(r string) bool { return slices.Contains(s.roles, r) })
	if len(refused) > 0 {
		return nil, fmt.Sprintf("Roles not allowed: %v", refused)
	}
	slices.Sort(roles)
	return slices.Compact(roles), ""
}

func (s *serviceAccounts) ensureSecret(
	ctx context.Context, account *unstructured.Unstructured, roles []string,
) (refusal string, err error) {
	api := s.secrets.CoreV1().Secrets(account.GetNamespace())
	secret, err := api.Get(ctx, account.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: account.GetName(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(account, talosServiceAccountKind)}}}
		if secret.Data, err = s.talosconfig(roles); err != nil {
			return "", err
		}
		if _, err = api.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return "", nil // another control plane server was faster
		}
		return "", err
	case err != nil:
		return "", err
	case !metav1.IsControlledBy(secret, account):
		return fmt.Sprintf("Secret already exists and is not managed by controller: %s/%s", secret.Namespace, secret.Name),
			nil
	case s.upToDate(secret, roles):
		return "", nil
	}
	if secret.Data, err = s.talosconfig(roles); err != nil {
		return "", err
	}
	if _, err = api.Update(ctx, secret, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
		return "", nil
	}
	return "", err
}

// ca is the authority of the machine API that issues certificates now.
func (s *serviceAccounts) ca() (*siderox509.PEMEncodedCertificateAndKey, error) {
	now, _ := s.authority.get()
	if now.machine.issuing == nil {
		return nil, errors.New("machine.ca: the machine configuration has none with a key")
	}
	pair := now.machine.issuing.Pair()
	return &siderox509.PEMEncodedCertificateAndKey{Crt: pair.Cert, Key: pair.Key}, nil
}

func (s *serviceAccounts) talosconfig(roles []string) (map[string][]byte, error) {
	set, _ := role.Parse(roles)
	ca, err := s.ca()
	if err != nil {
		return nil, err
	}
	pair, err := secrets.NewAdminCertificateAndKey(time.Now(), ca, set, serviceAccountLife)
	if err != nil {
		return nil, fmt.Errorf("issue a client certificate of the machine API: %w", err)
	}
	b, err := clientconfig.NewConfig("default", s.endpoints(), ca.Crt, pair).Bytes()
	return map[string][]byte{constants.TalosconfigFilename: b}, err
}

// upToDate says whether a Secret's certificate is signed by the current authority, for these roles, and does not expire
// soon.
func (s *serviceAccounts) upToDate(secret *corev1.Secret, roles []string) bool {
	ca, cert, err := readTalosconfig(secret.Data[constants.TalosconfigFilename])
	if err != nil {
		return false
	}
	now, err := s.ca()
	if err != nil {
		return false
	}
	has := slices.Sorted(slices.Values(cert.Subject.Organization))
	return bytes.Equal(ca, now.Crt) && slices.Equal(has, roles) && time.Until(cert.NotAfter) > serviceAccountRenewal
}

// readTalosconfig returns the authority, in PEM, and the client certificate of a talosconfig's present context.
func readTalosconfig(b []byte) (ca []byte, cert *x509.Certificate, err error) {
	config, err := clientconfig.FromString(string(b))
	if err != nil {
		return nil, nil, err
	}
	present := config.Contexts[config.Context]
	if present == nil {
		return nil, nil, errors.New("the talosconfig has no context")
	}
	if ca, err = base64.StdEncoding.DecodeString(present.CA); err != nil {
		return nil, nil, err
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(present.Crt))
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, errors.New("the talosconfig's certificate is no PEM")
	}
	cert, err = x509.ParseCertificate(block.Bytes)
	return ca, cert, err
}
