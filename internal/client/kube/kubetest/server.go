// Package kubetest is a Kubernetes API in memory, for tests: objects of any kind over HTTP, with discovery, lists,
// watches, server-side apply as a merge, and faults on demand. It has no admission, no defaults and no controllers;
// tests play those.
package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Resource is a kind that the server knows.
type Resource struct {
	Group, Version, Kind, Plural string
	Cluster                      bool // not in a namespace
}

func (r Resource) apiVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Builtin are the kinds that every cluster has, as far as tests need them.
func Builtin() []Resource {
	return []Resource{
		{"", "v1", "Namespace", "namespaces", true}, {"", "v1", "Node", "nodes", true}, {"", "v1", "Pod", "pods", false},
		{"", "v1", "Secret", "secrets", false}, {"", "v1", "ConfigMap", "configmaps", false},
		{"", "v1", "Service", "services", false},
		{"", "v1", "ServiceAccount", "serviceaccounts", false}, {"", "v1", "Event", "events", false},
		{"apps", "v1", "Deployment", "deployments", false}, {"apps", "v1", "DaemonSet", "daemonsets", false},
		{"apps", "v1", "StatefulSet", "statefulsets", false},
		{"apps", "v1", "ControllerRevision", "controllerrevisions", false},
		{"batch", "v1", "Job", "jobs", false},
		{"", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", false},
		{"coordination.k8s.io", "v1", "Lease", "leases", false},
		{"policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", false},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", true},
		{"admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", true},
		{"admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", true},
	}
}

// RBAC are the kinds of permissions.
func RBAC() []Resource {
	const group = "rbac.authorization.k8s.io"
	return []Resource{{group, "v1", "Role", "roles", false}, {group, "v1", "RoleBinding", "rolebindings", false},
		{group, "v1", "ClusterRole", "clusterroles", true}, {group, "v1", "ClusterRoleBinding", "clusterrolebindings", true}}
}

// Garbled is the code of an answer that no client understands, as of a connection that breaks.
const Garbled = -1

// Request is what a client asked, for tests that count writes.
type Request struct{ Method, Path string }

// Server is the API.
type Server struct {
	*httptest.Server
	// Fail may answer a request in the server's place: a status code other than 0, and a message; or Garbled. It is set
	// before the server is used.
	Fail func(*http.Request) (code int, message string)
	// Readyz answers /readyz; nil: it is ready.
	Readyz func() (code int, body string)
	// Logs answers requests for the logs of Pods; nil: there are none. It is set before the server is used.
	Logs http.HandlerFunc
	// Forward gives the address that a port of a Pod is forwarded to; nil: no port is. It is set before the server is
	// used.
	Forward func(namespace, pod, port string) (address string)
	// React plays the controllers: it gets every object that a client wrote, after the client has its answer. It is set
	// before the server is used, or later by SetReact.
	React func(*unstructured.Unstructured)
	// Now is the server's clock, in its answers' Date and in what its objects say of when they were written; nil: the
	// machine's. It is set before the server is used.
	Now func() time.Time
	// Strict has writes behave as the real API server's do: an outdated resourceVersion is a conflict, status is written
	// through its own path and by no other, and a changed spec is a generation more. It is set before the server is used.
	Strict bool

	reactMu   sync.Mutex
	mu        sync.Mutex
	resources []Resource
	objects   map[string]*unstructured.Unstructured // by path
	watchers  map[chan event]string                 // → path of the collection
	version   int
	requests  []Request
}

type event struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
	path   string
}

// New starts a server on loopback that knows the built-in kinds and the given ones. It has the namespaces kube-system,
// whose UID is uid, and default.
func New(uid string, more ...Resource) *Server {
	s := &Server{resources: append(Builtin(), more...), objects: map[string]*unstructured.Unstructured{},
		watchers: map[chan event]string{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	s.StartTLS()
	s.Put(Object("v1", "Namespace", "", "kube-system", map[string]any{"metadata": map[string]any{"uid": uid}}))
	s.Put(Object("v1", "Namespace", "", "default", nil))
	return s
}

// Kubeconfig opens the server.
func (s *Server) Kubeconfig() []byte {
	return []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: test, user: {token: test}}]
`, s.URL, base64.StdEncoding.EncodeToString(s.Authority())))
}

// Authority is the server's certificate as PEM: it signed itself, and each server has another.
func (s *Server) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.TLS.Certificates[0].Certificate[0]})
}

// certificate is one of a server on loopback.
func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Object builds an object; fields are merged over its names.
func Object(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	merge(o, fields)
	return &unstructured.Unstructured{Object: roundTrip(o)}
}

// Put stores an object as it is, in place of one of its name; a UID is made up where it has none.
func (s *Server) Put(o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(s.path(o), o.DeepCopy())
}

// Change merges fields into a stored object.
func (s *Server) Change(apiVersion, kind, namespace, name string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(Object(apiVersion, kind, namespace, name, nil))
	o := s.objects[path]
	if o == nil {
		panic("no object at " + path)
	}
	o = o.DeepCopy()
	merge(o.Object, roundTrip(fields))
	s.store(path, o)
}

// Get gives a stored object; nil where there is none.
func (s *Server) Get(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[s.path(Object(apiVersion, kind, namespace, name, nil))]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// All gives every stored object, by its path.
func (s *Server) All() map[string]*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]*unstructured.Unstructured{}
	for path, o := range s.objects {
		all[path] = o.DeepCopy()
	}
	return all
}

// Remove takes an object away.
func (s *Server) Remove(apiVersion, kind, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.path(Object(apiVersion, kind, namespace, name, nil)))
}

// Writes lists the requests so far that could have changed something. A port that is forwarded changes nothing by
// itself.
func (s *Server) Writes() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r Request) bool {
		return r.Method == http.MethodGet || strings.HasSuffix(r.Path, "/portforward")
	})
}

func (s *Server) path(o *unstructured.Unstructured) string {
	for _, r := range s.resources {
		if r.apiVersion() == o.GetAPIVersion() && r.Kind == o.GetKind() {
			return r.collection(o.GetNamespace()) + "/" + o.GetName()
		}
	}
	panic("kubetest: unknown kind " + o.GetAPIVersion() + " " + o.GetKind())
}

func (r Resource) collection(namespace string) string {
	base := "/apis/" + r.apiVersion()
	if r.Group == "" {
		base = "/api/" + r.Version
	}
	if namespace != "" && !r.Cluster {
		base += "/namespaces/" + namespace
	}
	return base + "/" + r.Plural
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Server) store(path string, o *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	if _, below, found := strings.Cut(path, "/namespaces/"); found && o.GetNamespace() == "" {
		if namespace, _, is := strings.Cut(below, "/"); is { // else it is the Namespace itself
			o.SetNamespace(namespace)
		}
	}
	kind := "ADDED"
	written := metav1.NewTime(s.now())
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(written)
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate,
		Time: &written}})
	if old := s.objects[path]; old != nil {
		kind = "MODIFIED"
		o.SetUID(old.GetUID())
		o.SetCreationTimestamp(old.GetCreationTimestamp())
	} else if o.GetUID() == "" {
		unstructured.SetNestedField(o.Object, "uid-"+strconv.Itoa(s.version), "metadata", "uid")
	}
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[path] = o
	s.tell(event{kind, o.DeepCopy().Object, path})
	return o
}

func (s *Server) remove(path string) {
	if o := s.objects[path]; o != nil {
		delete(s.objects, path)
		s.tell(event{"DELETED", o.Object, path})
	}
}

func (s *Server) tell(e event) {
	for ch, collection := range s.watchers {
		if belongs(e.path, collection) {
			select {
			case ch <- e:
			default: // a watcher that does not read; tests are not about it
			}
		}
	}
}

// belongs reports whether an object's path is in a collection, of one namespace or of all.
func belongs(path, collection string) bool {
	parent, _ := cut(path)
	if parent == collection {
		return true
	}
	group, plural := cut(collection)
	return strings.HasPrefix(parent, group+"/namespaces/") && strings.HasSuffix(parent, "/"+plural)
}

// cut splits a path at its last element.
func cut(path string) (parent, last string) {
	i := strings.LastIndex(path, "/")
	return path[:max(i, 0)], path[i+1:]
}

// selected lists the objects of a collection that a request's selectors take.
func (s *Server) selected(collection string, r *http.Request) []*unstructured.Unstructured {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil
	}
	var paths []string
	for path := range s.objects {
		if belongs(path, collection) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	var found []*unstructured.Unstructured
	for _, path := range paths {
		o := s.objects[path]
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		if byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": o.GetName(), "spec.nodeName": node}) {
			found = append(found, o)
		}
	}
	return found
}

// merge puts src into dst, maps by their keys, everything else as a whole; null removes.
func merge(dst, src map[string]any) {
	for k, v := range src {
		if child, ok := v.(map[string]any); ok {
			if existing, ok := dst[k].(map[string]any); ok {
				merge(existing, child)
				continue
			}
		}
		if v == nil {
			delete(dst, k)
			continue
		}
		dst[k] = v
	}
}

// roundTrip gives fields the types that JSON would.
func roundTrip(fields map[string]any) map[string]any {
	out := map[string]any{}
	data, err := json.Marshal(fields)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}
