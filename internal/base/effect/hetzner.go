package effect

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

var number = regexp.MustCompile(`^[0-9]+$`)

// asksForWrite is the request by which the doctor learns whether the token may write: the deletion of what cannot
// exist.
const asksForWrite = "placement_groups/0"

// HetznerCall names a request to the Hetzner Cloud API: "create firewalls/k8s", "set_rules firewalls/*", "delete
// servers/*". The question whether the token may write changes nothing.
func HetznerCall(request *http.Request) (verb, object string, ok bool) {
	if request.Method == http.MethodDelete && cutPrefix(request.URL.Path, "/v1/") == asksForWrite {
		return "", "", false
	}
	words := wordsOf(request, "/v1/")
	if i := len(words) - 2; i > 0 && words[i] == "actions" {
		return words[i+1], strings.Join(words[:i], "/"), true
	}
	if request.Method == http.MethodPost {
		words = append(words, madeName(request))
	}
	return methodVerb(request.Method), strings.Join(words, "/"), true
}

// wordsOf are those of a request's path behind a prefix, with * in the place of numbers.
func wordsOf(request *http.Request, prefix string) []string {
	words := strings.Split(cutPrefix(request.URL.Path, prefix), "/")
	for i, word := range words {
		if number.MatchString(word) {
			words[i] = "*"
		}
	}
	return words
}

// madeName is the name of what a request creates; empty: its body has none.
func madeName(request *http.Request) string {
	var made struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(body(request), &made)
	return made.Name
}

// methodVerb is what a method of HTTP does.
func methodVerb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return strings.ToLower(method)
}

// cutPrefix is what follows the first prefix in a path, without slashes at its ends.
func cutPrefix(path, prefix string) string {
	if _, rest, found := strings.Cut(path, prefix); found {
		path = rest
	}
	return strings.Trim(path, "/")
}
