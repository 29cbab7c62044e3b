package kube_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

var widget = kubetest.Resource{Group: "example.com", Version: "v1", Kind: "Widget", Plural: "widgets"}

// connect starts an API and connects to it.
func connect(t *testing.T, more ...kubetest.Resource) (*kubetest.Server, *kube.Cluster) {
	t.Helper()
	s := kubetest.New("uid-of-the-cluster", more...)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestClusterHasAnIdentity(t *testing.T) {
	_, c := connect(t)
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if uid, err := c.UID(t.Context()); err != nil || uid != "uid-of-the-cluster" {
		t.Fatalf("UID is %q, %v", uid, err)
	}
}

func TestReadySaysWhatIsNot(t *testing.T) {
	s, c := connect(t)
	code, body := http.StatusInternalServerError, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log "+
		"ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n"
	s.Readyz = func() (int, string) { return code, body }
	if err := c.Ready(t.Context()); err == nil || err.Error() != "not ready: etcd, informer-sync" {
		t.Errorf("got %v", err)
	}
	code, body = http.StatusForbidden, ""
	if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
	s.Close()
	if err := c.Ready(t.Context()); err == nil || strings.Contains(err.Error(), "readyz") ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestUnreachableIsNotAbsent(t *testing.T) {
	s, c := connect(t)
	s.Close()
	_, err := c.UID(t.Context())
	if err == nil || kube.Absent(err) {
		t.Fatalf("a cluster that does not answer counts as one that has nothing: %v", err)
	}
}

func TestAbsent(t *testing.T) {
	_, c := connect(t)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"},
		&corev1.Secret{}); !kube.Absent(err) {
		t.Errorf("a missing object is not absent: %v", err)
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind("Widget")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"}, o); !kube.Absent(err) {
		t.Errorf("an object of a missing kind is not absent: %v", err)
	}
}

// An API server that has just started does not offer every kind that it has. That is no answer about an object.
func TestUnservedIsNotAbsent(t *testing.T) {
	definition := kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", nil)
	for name, tt := range map[string]struct {
		defined bool
		object  string // apiVersion of a Widget, or of a built-in kind
		fail    map[string]int
		absent  bool
		says    string
	}{
		"no definition": {fail: map[string]int{"/apis/example.com/v1": 404}, absent: true},
		"defined, not offered": {defined: true, fail: map[string]int{"/apis/example.com/v1": 404},
			says: "has its definition"},
		"definitions cannot be asked": {fail: map[string]int{"/apis/example.com/v1": 404,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com": 503}, says: "not known"},
		"definitions not offered either": {defined: true, fail: map[string]int{"/apis/example.com/v1": 404,
			"/apis/apiextensions.k8s.io/v1": 404}, says: "not known"},
		"a kind of every cluster": {object: "apps/v1", fail: map[string]int{"/apis/apps/v1": 404},
			says: "every cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := connect(t, widget)
			if tt.defined {
				s.Put(definition)
			}
			s.Fail = func(r *http.Request) (int, string) { return tt.fail[r.URL.Path], "404 page not found" }
			o, l := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
			o.SetAPIVersion("example.com/v1")
			o.SetKind("Widget")
			if tt.object != "" {
				o.SetAPIVersion(tt.object)
				o.SetKind("Deployment")
			}
			l.SetAPIVersion(o.GetAPIVersion())
			l.SetKind(o.GetKind() + "List")
			briefly := func(ask func(context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				return ask(ctx)
			}
			for what, err := range map[string]error{
				"get": briefly(func(ctx context.Context) error {
					return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "none"}, o)
				}),
				"list": briefly(func(ctx context.Context) error { return c.List(ctx, l, client.InNamespace("default")) }),
			} {
				if err == nil || kube.Absent(err) != tt.absent || !kube.UnknownKind(err) ||
					!strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: absent %v, unknown kind %v: %v", what, kube.Absent(err), kube.UnknownKind(err), err)
				}
			}
		})
	}
}

// What is offered some seconds later is read and written then, as behind a load balancer whose newest API server has
// just started.
func TestRequestsWaitForTheirKind(t *testing.T) {
	for what, request := range map[string]func(context.Context, *kube.Cluster, *unstructured.Unstructured) error{
		"read": func(ctx context.Context, c *kube.Cluster, o *unstructured.Unstructured) error {
			return c.Get(ctx, client.ObjectKeyFromObject(o), o)
		},
		"write": func(ctx context.Context, c *kube.Cluster, o *unstructured.Unstructured) error {
			return c.Apply(ctx, o)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // it waits
			offeredLater(t, request)
		})
	}
}

func offeredLater(t *testing.T, request func(context.Context, *kube.Cluster, *unstructured.Unstructured) error) {
	t.Helper()
	s, c := connect(t, widget)
	s.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", nil))
	s.Put(kubetest.Object("example.com/v1", "Widget", "default", "w", nil))
	var asked atomic.Int32
	s.Fail = func(r *http.Request) (int, string) {
		if r.URL.Path == "/apis/example.com/v1" && asked.Add(1) <= 14 {
			return http.StatusNotFound, "404 page not found"
		}
		return 0, ""
	}
	o := kubetest.Object("example.com/v1", "Widget", "default", "w", nil)
	if err := request(t.Context(), c, o); err != nil || o.GetUID() == "" {
		t.Errorf("%v, %v", o, err)
	}
}

func TestApplyIsServerSide(t *testing.T) {
	s, c := connect(t, widget)
	s.Put(kubetest.Object("example.com/v1", "Widget", "default", "w",
		map[string]any{"spec": map[string]any{"theirs": "kept", "ours": "old"}}))
	o := kubetest.Object("example.com/v1", "Widget", "default", "w", map[string]any{"spec": map[string]any{"ours": "new"}})
	if err := c.Apply(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	spec := s.Get("example.com/v1", "Widget", "default", "w").Object["spec"].(map[string]any)
	if spec["ours"] != "new" || spec["theirs"] != "kept" {
		t.Errorf("applied %v", spec)
	}
	if o.GetUID() == "" {
		t.Error("the applied object is not what the cluster answered")
	}
	if w := s.Writes(); len(w) != 1 || w[0].Method != http.MethodPatch {
		t.Errorf("wrote %v", w)
	}
}

func TestWebhookDown(t *testing.T) {
	s, c := connect(t, widget)
	code, message := http.StatusInternalServerError,
		`Internal error occurred: failed calling webhook "x": connection refused`
	s.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch {
			return code, message
		}
		return 0, ""
	}
	o := func() *unstructured.Unstructured {
		return kubetest.Object("example.com/v1", "Widget", "default", "w", nil)
	}
	if err := c.Apply(t.Context(), o()); !kube.WebhookDown(err) {
		t.Errorf("not taken for a silent webhook: %v", err)
	}
	code, message = http.StatusForbidden, `admission webhook "x" denied the request`
	if err := c.Apply(t.Context(), o()); err == nil || kube.WebhookDown(err) {
		t.Errorf("a webhook's refusal is taken for silence: %v", err)
	}
}

func TestUnwell(t *testing.T) {
	for what, tt := range map[string]struct {
		status int
		want   bool
	}{
		"an API server that starts":      {http.StatusServiceUnavailable, true},
		"no leader of etcd":              {http.StatusInternalServerError, true},
		"etcd did not answer":            {http.StatusGatewayTimeout, true},
		"too much to do":                 {http.StatusTooManyRequests, true},
		"not allowed":                    {http.StatusForbidden, false},
		"an object that is not valid":    {http.StatusUnprocessableEntity, false},
		"a client that is not logged in": {http.StatusUnauthorized, false},
		"conversion webhook for example.com/v1, Kind=Widget failed: connection refused": {http.StatusInternalServerError, true},
	} {
		s, c := connect(t, widget)
		s.Fail = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPatch {
				return tt.status, what
			}
			return 0, ""
		}
		if err := c.Apply(t.Context(), kubetest.Object("example.com/v1", "Widget", "default", "w", nil)); err == nil ||
			kube.Unwell(err) != tt.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	s, c := connect(t, widget)
	s.Close()
	if err := c.Apply(t.Context(), kubetest.Object("example.com/v1", "Widget", "default", "w", nil)); !kube.Unwell(err) {
		t.Errorf("an API server that is gone: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := c.Apply(ctx, kubetest.Object("example.com/v1", "Widget", "default", "w", nil)); !kube.Unwell(err) {
		t.Errorf("an API server that is silent: %v", err)
	}
}

func TestChangesSignal(t *testing.T) {
	s, c := connect(t, widget)
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.com/v1")
	list.SetKind("WidgetList")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	changes := c.Changes(ctx, kube.Selection{List: list, Options: []client.ListOption{client.InNamespace("default")}})
	s.Put(kubetest.Object("example.com/v1", "Widget", "default", "w", nil))
	select {
	case <-changes:
	case <-time.After(10 * time.Second):
		t.Fatal("no signal after a change")
	}
}

func TestWebhooks(t *testing.T) {
	s, c := connect(t, widget)
	hook := func(bundle string) *unstructured.Unstructured {
		return kubetest.Object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "hooks",
			map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"part-of": "it"}},
				"webhooks": []any{map[string]any{
					"name": "widget.example.com", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
					"clientConfig": map[string]any{"caBundle": bundle, "service": map[string]any{"name": "hooks",
						"namespace": "default"}},
					"rules": []any{map[string]any{
						"apiGroups": []any{"example.com"}, "apiVersions": []any{"v1"}, "resources": []any{"widgets", "widgets/status"},
						"operations": []any{"CREATE", "UPDATE"},
					}},
				}},
			})
	}
	s.Put(hook(""))
	if missing, err := c.UntrustedWebhooks(t.Context(), "part-of"); err != nil ||
		!strings.Contains(missing, "widget.example.com") {
		t.Errorf("a webhook without authority is not missed: %q %v", missing, err)
	}
	many := hook("")
	hooks, _, _ := unstructured.NestedSlice(many.Object, "webhooks")
	for range 40 {
		hooks = append(hooks, hooks[0])
	}
	_ = unstructured.SetNestedSlice(many.Object, hooks, "webhooks") // they are as they were read
	s.Put(many)
	if missing, err := c.UntrustedWebhooks(t.Context(), "part-of"); err != nil ||
		!strings.HasPrefix(missing, "41 webhooks have no certificate authority (widget.example.com, ") || len(missing) > 120 {
		t.Errorf("of many webhooks without authority it says %q %v", missing, err)
	}
	s.Put(hook("Y2E="))
	if missing, err := c.UntrustedWebhooks(t.Context(), "part-of"); err != nil || missing != "" {
		t.Errorf("missing %q, %v", missing, err)
	}
	if missing, err := c.ProbeWebhooks(t.Context(), "default", "part-of"); err != nil || missing != "" {
		t.Errorf("silent: %q, %v", missing, err)
	}
	if s.Get("example.com/v1", "Widget", "default", "slipway-probe") != nil {
		t.Error("the probe was stored")
	}
	for _, tt := range []struct {
		code    int
		message string
		silent  bool
	}{
		{http.StatusInternalServerError, `failed calling webhook "widget.example.com": connection refused`, true},
		{http.StatusForbidden, `admission webhook "widget.example.com" denied the request`, false},
		{http.StatusInternalServerError, `admission webhook "widget.example.com" denied the request: panic: it expects more`,
			false},
		{http.StatusUnprocessableEntity, `Widget "slipway-probe" is invalid: spec.size: Required value`, false},
	} {
		s.Fail = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPost {
				return tt.code, tt.message
			}
			return 0, ""
		}
		missing, err := c.ProbeWebhooks(t.Context(), "default", "part-of")
		if err != nil || (missing != "") != tt.silent {
			t.Errorf("%d %s: silent %q, %v", tt.code, tt.message, missing, err)
		}
	}
}

// A validating webhook is called for an object that the schema lets pass, and for no other.
func TestProbesHaveWhatTheSchemaRequires(t *testing.T) {
	s, c := connect(t, widget)
	s.Put(kubetest.Object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "hooks", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"part-of": "it"}},
		"webhooks": []any{map[string]any{
			"name": "widget.example.com", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{"caBundle": "Y2E="},
			"rules": []any{map[string]any{"apiGroups": []any{"example.com"}, "apiVersions": []any{"v1"},
				"resources": []any{"widgets"}, "operations": []any{"CREATE"}}},
		}},
	}))
	text := map[string]any{"type": "string"}
	s.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com",
		map[string]any{"spec": map[string]any{"versions": []any{
			map[string]any{"name": "v1alpha1",
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": map[string]any{
					"type": "object", "required": []any{"old"}, "properties": map[string]any{"old": text}}}}}},
			map[string]any{"name": "v1",
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": map[string]any{
					"type":     "object",
					"required": []any{"name", "kind", "size", "on", "colors", "parts", "template", "port"},
					"properties": map[string]any{
						"name": text, "kind": map[string]any{"type": "string", "enum": []any{"round", "square"}},
						"size": map[string]any{"type": "integer", "minimum": int64(3)},
						"on":   map[string]any{"type": "boolean"}, "colors": map[string]any{"type": "array", "items": text},
						"parts": map[string]any{"type": "array", "minItems": int64(1), "items": map[string]any{"type": "object",
							"required": []any{"id"}, "properties": map[string]any{
								"id": map[string]any{"type": "integer", "default": int64(7)}, "note": text}}},
						"template": map[string]any{"type": "object", "required": []any{"spec"},
							"properties": map[string]any{"spec": map[string]any{"type": "object"}}},
						"port": map[string]any{"x-kubernetes-int-or-string": true}, "note": text,
					}}}}}},
		}}}))
	var asked map[string]any
	s.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			var object struct{ Spec map[string]any }
			_ = json.Unmarshal(body, &object) // what is missing is seen below
			asked = object.Spec
			return http.StatusForbidden, `admission webhook "widget.example.com" denied the request`
		}
		return 0, ""
	}
	if missing, err := c.ProbeWebhooks(t.Context(), "default", "part-of"); err != nil || missing != "" {
		t.Fatalf("silent: %q, %v", missing, err)
	}
	want := map[string]any{"name": "slipway-probe", "kind": "round", "size": 3.0, "on": false, "colors": []any{},
		"parts":    []any{map[string]any{"id": 7.0}},
		"template": map[string]any{"spec": map[string]any{}}, "port": 1.0}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("the probe has %v", asked)
	}
}

func TestConnectRefusesNonsense(t *testing.T) {
	if _, err := kube.Connect([]byte("not: a kubeconfig")); err == nil {
		t.Error("took a text without clusters for a kubeconfig")
	}
}

func TestDocuments(t *testing.T) {
	docs, err := kube.Documents([]byte("# only a comment\n---\na: 1\n---\n\n---\n# comment\nb: 2\n"))
	if err != nil || len(docs) != 2 || !strings.Contains(string(docs[1]), "b: 2") {
		t.Fatalf("got %q, %v", docs, err)
	}
	if _, err := kube.Parse([]byte("kind: A\napiVersion: v1\nmetadata: {name: a}\nkind: B")); err == nil {
		t.Error("took a duplicate key")
	}
	if _, err := kube.Parse([]byte("kind: A\napiVersion: v1")); err == nil {
		t.Error("took an object without a name")
	}
}
