package certmanager

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/standin"
)

const group = "cert-manager.io"

var groupVersion = schema.GroupVersion{Group: group, Version: "v1"}

// addToScheme registers the kinds below: cert-manager's, with the fields that are acted on. Objects are only ever
// patched, so that what these types do not know stays as it is.
func addToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(groupVersion,
		&Certificate{}, &CertificateList{}, &Issuer{}, &IssuerList{}, &ClusterIssuer{}, &ClusterIssuerList{})
	metav1.AddToGroupVersion(s, groupVersion)
	return nil
}

// Certificate requests a certificate in a Secret.
type Certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CertificateSpec   `json:"spec"`
	Status CertificateStatus `json:"status,omitempty"`
}

// CertificateList is a list of Certificate.
type CertificateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Certificate `json:"items"`
}

// CertificateSpec is the content of the certificate, and its issuer.
type CertificateSpec struct {
	SecretName     string           `json:"secretName"`
	SecretTemplate *SecretTemplate  `json:"secretTemplate,omitempty"`
	IssuerRef      IssuerRef        `json:"issuerRef"`
	CommonName     string           `json:"commonName,omitempty"`
	Subject        *Subject         `json:"subject,omitempty"`
	DNSNames       []string         `json:"dnsNames,omitempty"`
	IPAddresses    []string         `json:"ipAddresses,omitempty"`
	URIs           []string         `json:"uris,omitempty"`
	EmailAddresses []string         `json:"emailAddresses,omitempty"`
	IsCA           bool             `json:"isCA,omitempty"`
	Usages         []string         `json:"usages,omitempty"`
	Duration       *metav1.Duration `json:"duration,omitempty"`
	RenewBefore    *metav1.Duration `json:"renewBefore,omitempty"`
	PrivateKey     *PrivateKey      `json:"privateKey,omitempty"`

	// Fields that are not simulated.
	LiteralSubject          string          `json:"literalSubject,omitempty"`
	Keystores               json.RawMessage `json:"keystores,omitempty"`
	AdditionalOutputFormats json.RawMessage `json:"additionalOutputFormats,omitempty"`
}

// SecretTemplate is metadata for the Secret.
type SecretTemplate struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// IssuerRef names the Issuer (the default kind) or ClusterIssuer.
type IssuerRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"`
	Group string `json:"group,omitempty"`
}

// Subject is the certificate's subject, besides the common name.
type Subject struct {
	Organizations       []string `json:"organizations,omitempty"`
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`
	Countries           []string `json:"countries,omitempty"`
	Localities          []string `json:"localities,omitempty"`
	Provinces           []string `json:"provinces,omitempty"`
}

// PrivateKey is the kind of key: RSA of 2048 bits by default, a new one each time.
type PrivateKey struct {
	Algorithm      string `json:"algorithm,omitempty"`
	Encoding       string `json:"encoding,omitempty"`
	Size           int    `json:"size,omitempty"`
	RotationPolicy string `json:"rotationPolicy,omitempty"`
}

// CertificateStatus is the certificate in the Secret.
type CertificateStatus struct {
	Conditions  []Condition  `json:"conditions,omitempty"`
	NotBefore   *metav1.Time `json:"notBefore,omitempty"`
	NotAfter    *metav1.Time `json:"notAfter,omitempty"`
	RenewalTime *metav1.Time `json:"renewalTime,omitempty"`
	Revision    *int         `json:"revision,omitempty"`
}

// Condition is cert-manager's.
type Condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	LastTransitionTime *metav1.Time           `json:"lastTransitionTime,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	ObservedGeneration int64                  `json:"observedGeneration,omitempty"`
}

// Issuer signs the Certificates of its namespace.
type Issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IssuerSpec   `json:"spec"`
	Status IssuerStatus `json:"status,omitempty"`
}

// IssuerList is a list of Issuer.
type IssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Issuer `json:"items"`
}

// ClusterIssuer signs Certificates of every namespace.
type ClusterIssuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IssuerSpec   `json:"spec"`
	Status IssuerStatus `json:"status,omitempty"`
}

// ClusterIssuerList is a list of ClusterIssuer.
type ClusterIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterIssuer `json:"items"`
}

// IssuerSpec is the kind of issuer: one of these two, others are not simulated.
type IssuerSpec struct {
	SelfSigned *struct{} `json:"selfSigned,omitempty"`
	CA         *CAIssuer `json:"ca,omitempty"`
}

// CAIssuer names the Secret with the authority's tls.crt and tls.key.
type CAIssuer struct {
	SecretName string `json:"secretName"`
}

// IssuerStatus has the Ready condition.
type IssuerStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Certificate) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopy returns a copy.
func (c *Certificate) DeepCopy() *Certificate { return standin.Copy(c) }

// DeepCopyObject implements runtime.Object.
func (l *CertificateList) DeepCopyObject() runtime.Object { return standin.Copy(l) }

// anyIssuer is an Issuer or a ClusterIssuer.
type anyIssuer interface {
	client.Object
	parts() (IssuerSpec, *IssuerStatus)
}

func (i *Issuer) parts() (IssuerSpec, *IssuerStatus)        { return i.Spec, &i.Status }
func (i *ClusterIssuer) parts() (IssuerSpec, *IssuerStatus) { return i.Spec, &i.Status }

// DeepCopyObject implements runtime.Object.
func (i *Issuer) DeepCopyObject() runtime.Object { return standin.Copy(i) }

// DeepCopyObject implements runtime.Object.
func (l *IssuerList) DeepCopyObject() runtime.Object { return standin.Copy(l) }

// DeepCopyObject implements runtime.Object.
func (i *ClusterIssuer) DeepCopyObject() runtime.Object { return standin.Copy(i) }

// DeepCopyObject implements runtime.Object.
func (l *ClusterIssuerList) DeepCopyObject() runtime.Object { return standin.Copy(l) }

// setReady puts a Ready condition in place of the one in list; its transition time changes with the status only.
func setReady(list []Condition, now metav1.Time, ready Condition) []Condition {
	ready.Type = "Ready"
	ready.LastTransitionTime = &now
	i := slices.IndexFunc(list, func(c Condition) bool { return c.Type == ready.Type })
	if i < 0 {
		return append(slices.Clone(list), ready)
	}
	list = slices.Clone(list)
	if list[i].Status == ready.Status {
		ready.LastTransitionTime = list[i].LastTransitionTime
	}
	list[i] = ready
	return list
}

// isReady says whether the Ready condition of list is true.
func isReady(list []Condition) bool {
	return slices.ContainsFunc(list,
		func(c Condition) bool { return c.Type == "Ready" && c.Status == corev1.ConditionTrue })
}
