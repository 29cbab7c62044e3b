package effect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// questions are groups whose objects are created to be answered, and not kept.
var questions = []string{"authorization.k8s.io", "authentication.k8s.io"}

// locks is the group of Leases: they say who is at work, not what was done.
const locks = "coordination.k8s.io"

// forward opens a connection to a Pod. What is sent through it changes something, and is named by who sends it.
const forward = "portforward"

// KubernetesCall names a request to a Kubernetes API server: "apply clusters.cluster.x-k8s.io/default/k8s". Dry runs,
// reviews, leases and forwarded ports change nothing.
func KubernetesCall(request *http.Request) (verb, object string, ok bool) {
	p, ok := parsePath(request.URL.Path)
	if !ok || slices.Contains(questions, p.group) || p.group == locks || p.subresource == forward ||
		request.URL.Query().Get("dryRun") == metav1.DryRunAll {
		return "", "", false
	}
	verb = methodVerb(request.Method)
	switch {
	case request.Method == http.MethodPatch && strings.HasPrefix(request.Header.Get("Content-Type"),
		"application/apply-patch"):
		verb = "apply"
	case request.Method == http.MethodPost && p.name == "":
		p.name = nameIn(body(request))
	case request.Method == http.MethodDelete && p.name == "":
		verb = "deletecollection"
	}
	return verb, p.String(), true
}

// path is what a path of the API names.
type path struct{ group, resource, namespace, name, subresource string }

// String is "deployments.apps/capi-system/capi-controller-manager", "namespaces/capi-system".
func (p path) String() string {
	s := p.resource
	if p.group != "" {
		s += "." + p.group
	}
	for _, word := range []string{p.namespace, p.name, p.subresource} {
		if word != "" {
			s += "/" + word
		}
	}
	return s
}

func parsePath(url string) (p path, ok bool) {
	var words []string
	if _, rest, found := strings.Cut(url, "/apis/"); found {
		if words = strings.Split(strings.Trim(rest, "/"), "/"); len(words) < 3 {
			return path{}, false
		}
		p.group, words = words[0], words[2:]
	} else if _, rest, found := strings.Cut(url, "/api/v1/"); found {
		words = strings.Split(strings.Trim(rest, "/"), "/")
	} else {
		return path{}, false
	}
	// namespaces/<name>/<status or finalize> is about the namespace, anything else behind its name is in it.
	if words[0] == "namespaces" && len(words) > 2 && words[2] != "status" && words[2] != "finalize" {
		p.namespace, words = words[1], words[2:]
	}
	words = append(words, "", "")
	p.resource, p.name, p.subresource = words[0], words[1], words[2]
	return p, p.resource != ""
}

// protobufMagic begins an object in Kubernetes's protobuf encoding.
var protobufMagic = []byte("k8s\x00")

// nameIn reads the name of an object that is to be created, in JSON or protobuf.
func nameIn(data []byte) string {
	var o metav1.PartialObjectMetadata
	if encoded, found := bytes.CutPrefix(data, protobufMagic); found {
		var envelope runtime.Unknown
		// every kind has its metadata in the same field
		if envelope.Unmarshal(encoded) != nil || o.Unmarshal(envelope.Raw) != nil {
			return ""
		}
	} else if json.Unmarshal(data, &o) != nil {
		return ""
	}
	if o.Name == "" && o.GenerateName != "" {
		return o.GenerateName + "*"
	}
	return o.Name
}
