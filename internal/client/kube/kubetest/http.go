package kubetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, Request{r.Method, r.URL.Path})
	s.mu.Unlock()
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	if s.Fail != nil {
		if code, message := s.Fail(r); code == Garbled {
			garble(w)
			return
		} else if code != 0 {
			if code == http.StatusTooManyRequests { // as of a list whose objects it cannot convert
				w.Header().Set("Retry-After", "30")
			}
			refuse(w, code, message)
			return
		}
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/readyz" && s.Readyz != nil:
		code, text := s.Readyz()
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	case path == "/readyz":
		_, _ = io.WriteString(w, "ok")
	case path == "/version":
		reply(w, http.StatusOK, map[string]any{"major": "1", "minor": "35", "gitVersion": "v1.35.4"})
	case path == "/api" || path == "/apis" || strings.Count(path, "/") == 2 && strings.HasPrefix(path, "/api/") ||
		strings.Count(path, "/") == 3 && strings.HasPrefix(path, "/apis/") || strings.Count(path, "/") == 2 &&
		strings.HasPrefix(path, "/apis/"):
		s.discover(w, path)
	case s.Logs != nil && strings.HasSuffix(path, "/log") && strings.Contains(path, "/pods/"):
		s.Logs(w, r)
	case s.Forward != nil && strings.HasSuffix(path, "/portforward") && strings.Contains(path, "/pods/"):
		s.forward(w, r, path)
	default:
		if resource, is := s.resourceOf(path); is {
			s.serveCollection(w, r, path, resource)
			return
		}
		s.serveObject(w, r, path)
	}
}

// garble answers with what is no HTTP.
func garble(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(connection, "nonsense\r\n\r\n")
	_ = connection.Close()
}

// discover answers what kinds there are.
func (s *Server) discover(w http.ResponseWriter, path string) {
	versions := map[string][]any{} // group/version → resources
	groups := map[string][]any{}   // group → versions
	for _, r := range s.resources {
		if versions[r.apiVersion()] == nil && r.Group != "" {
			groups[r.Group] = append(groups[r.Group], map[string]any{"groupVersion": r.apiVersion(), "version": r.Version})
		}
		versions[r.apiVersion()] = append(versions[r.apiVersion()], map[string]any{
			"name": r.Plural, "kind": r.Kind, "namespaced": !r.Cluster, "singularName": strings.ToLower(r.Kind),
			"verbs": []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
	}
	group := func(name string) map[string]any {
		return map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": groups[name],
			"preferredVersion": groups[name][0]}
	}
	apiVersion := strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")
	switch {
	case path == "/api":
		reply(w, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		var all []any
		for name := range groups {
			all = append(all, group(name))
		}
		reply(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
	case groups[apiVersion] != nil:
		reply(w, http.StatusOK, group(apiVersion))
	case versions[apiVersion] != nil:
		reply(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": apiVersion,
			"resources": versions[apiVersion]})
	default:
		refuse(w, http.StatusNotFound, "the server could not find the requested resource")
	}
}

// resourceOf is the kind whose objects a collection's path holds.
func (s *Server) resourceOf(path string) (Resource, bool) {
	for _, r := range s.resources {
		if path == r.collection("") {
			return r, true
		}
		prefix, _ := cut(r.collection(""))
		if rest, ok := strings.CutPrefix(path, prefix+"/namespaces/"); ok && !r.Cluster {
			if _, plural := cut(rest); plural == r.Plural && strings.Count(rest, "/") == 1 {
				return r, true
			}
		}
	}
	return Resource{}, false
}

func (s *Server) serveCollection(w http.ResponseWriter, r *http.Request, path string, resource Resource) {
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, path)
	case r.Method == http.MethodGet:
		s.mu.Lock()
		items := []any{}
		for _, o := range s.selected(path, r) {
			items = append(items, s.shape(r, o.DeepCopy().Object))
		}
		s.mu.Unlock()
		l := map[string]any{"apiVersion": resource.apiVersion(), "kind": resource.Kind + "List",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": items}
		if metadataOnly(r) {
			l["apiVersion"], l["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		reply(w, http.StatusOK, l)
	case r.Method == http.MethodPost:
		o, ok := body(w, r)
		if !ok {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		at := path + "/" + o.GetName()
		if s.objects[at] != nil {
			refuse(w, http.StatusConflict, at+" already exists")
			return
		}
		if r.URL.Query().Get("dryRun") == "" {
			o = s.store(at, o)
			s.react(o)
		}
		reply(w, http.StatusCreated, o.Object)
	default:
		refuse(w, http.StatusMethodNotAllowed, r.Method)
	}
}

func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, path string) {
	parent, name := cut(path)
	status := name == "status"
	if status {
		path = parent
		parent, _ = cut(path)
	}
	if _, ok := s.resourceOf(parent); !ok {
		refuse(w, http.StatusNotFound, "the server could not find the requested resource "+path)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	apply := r.Method == http.MethodPatch && strings.Contains(r.Header.Get("Content-Type"), "apply-patch")
	if o == nil && !apply {
		refuse(w, http.StatusNotFound, path+" not found")
		return
	}
	switch r.Method {
	case http.MethodGet:
		reply(w, http.StatusOK, s.shape(r, o.DeepCopy().Object))
	case http.MethodDelete:
		if differs := demanded(r, o); differs != "" {
			reply(w, http.StatusConflict, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"code": http.StatusConflict, "reason": "Conflict",
				"message": "the " + differs + " in the precondition is another"})
			return
		}
		s.remove(path)
		reply(w, http.StatusOK, o.Object)
	case http.MethodPut, http.MethodPatch:
		in, ok := body(w, r)
		if !ok {
			return
		}
		if seen := in.GetResourceVersion(); r.Method == http.MethodPut && seen != "" && seen != o.GetResourceVersion() {
			refuse(w, http.StatusConflict, path+" has been modified")
			return
		}
		if r.Method == http.MethodPatch && o != nil {
			merged := o.DeepCopy()
			merge(merged.Object, in.Object)
			in = merged
		}
		switch {
		case s.Strict && o != nil:
			if version := in.GetResourceVersion(); version != "" && version != o.GetResourceVersion() {
				refuse(w, http.StatusConflict, "the object has been modified; apply your changes to the latest version")
				return
			}
			in = strict(o, in, status)
		case o != nil && o.GetGeneration() > 0 && !reflect.DeepEqual(o.Object["spec"], in.Object["spec"]):
			in.SetGeneration(o.GetGeneration() + 1)
		}
		if r.URL.Query().Get("dryRun") != "" {
			reply(w, http.StatusOK, in.Object)
			return
		}
		o = s.store(path, in)
		s.react(o)
		reply(w, http.StatusOK, o.Object)
	default:
		refuse(w, http.StatusMethodNotAllowed, r.Method)
	}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, path string) {
	events := make(chan event, 100)
	s.mu.Lock()
	for _, o := range s.selected(path, r) {
		events <- event{Type: "ADDED", Object: o.DeepCopy().Object}
	}
	s.watchers[events] = path
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if err := json.NewEncoder(w).Encode(e); err != nil {
				return
			}
			_ = flush.Flush()
		}
	}
}

// SetReact sets React while the server is in use.
func (s *Server) SetReact(react func(*unstructured.Unstructured)) {
	s.reactMu.Lock()
	defer s.reactMu.Unlock()
	s.React = react
}

func (s *Server) react(o *unstructured.Unstructured) {
	s.reactMu.Lock()
	react := s.React
	s.reactMu.Unlock()
	if react != nil {
		go react(o.DeepCopy())
	}
}

func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shape is an object as the request wants it.
func (s *Server) shape(r *http.Request, o map[string]any) map[string]any {
	if !metadataOnly(r) {
		return o
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
}

// strict is what a write makes of an object where status has a path of its own.
func strict(was, in *unstructured.Unstructured, status bool) *unstructured.Unstructured {
	merged, from := in.DeepCopy(), was
	if status {
		merged, from = was.DeepCopy(), in
	}
	delete(merged.Object, "status")
	if value, ok := from.Object["status"]; ok {
		merged.Object["status"] = runtime.DeepCopyJSONValue(value)
	}
	merged.SetGeneration(was.GetGeneration())
	if !reflect.DeepEqual(was.Object["spec"], merged.Object["spec"]) {
		merged.SetGeneration(was.GetGeneration() + 1)
	}
	return merged
}

// demanded is which precondition of a deletion does not hold; empty: all do.
func demanded(r *http.Request, o *unstructured.Unstructured) (differs string) {
	options := &metav1.DeleteOptions{}
	data, err := io.ReadAll(r.Body)
	if err == nil && bytes.HasPrefix(data, protobufPrefix) {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(data, nil, options)
	} else if err == nil {
		err = json.Unmarshal(data, options)
	}
	if err != nil || options.Preconditions == nil {
		return ""
	}
	if uid := options.Preconditions.UID; uid != nil && *uid != o.GetUID() {
		return "UID"
	}
	if version := options.Preconditions.ResourceVersion; version != nil && *version != o.GetResourceVersion() {
		return "resourceVersion"
	}
	return ""
}

// protobufPrefix begins what a client of built-in kinds sends.
var protobufPrefix = []byte("k8s\x00")

// body reads an object, JSON, YAML or, of built-in kinds, protobuf.
func body(w http.ResponseWriter, r *http.Request) (*unstructured.Unstructured, bool) {
	data, err := io.ReadAll(r.Body)
	o := map[string]any{}
	switch {
	case err != nil:
	case bytes.HasPrefix(data, protobufPrefix):
		var typed runtime.Object
		if typed, _, err = scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil); err == nil {
			o, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		}
	default:
		err = yaml.Unmarshal(data, &o)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return nil, false
	}
	return &unstructured.Unstructured{Object: o}, true
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// refuse answers with a Status, as the real one does.
func refuse(w http.ResponseWriter, code int, message string) {
	reasons := map[int]string{
		http.StatusNotFound: "NotFound", http.StatusConflict: "AlreadyExists", http.StatusBadRequest: "BadRequest",
		http.StatusForbidden:           "Forbidden",
		http.StatusUnprocessableEntity: "Invalid", http.StatusInternalServerError: "InternalError",
		http.StatusServiceUnavailable: "ServiceUnavailable",
	}
	reason := reasons[code]
	if code == http.StatusConflict && strings.Contains(message, "has been modified") {
		reason = "Conflict"
	}
	if strings.HasPrefix(message, "conversion webhook for ") {
		reason = "" // as an API server says it
	}
	reply(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
		"reason": reason, "code": code})
}
