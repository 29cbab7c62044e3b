package effect

import (
	"encoding/json"
	"net/http"
	"strings"
)

// GiteaCall names a request to Gitea's API: "create users/gitea_admin/tokens", "delete users/gitea_admin/tokens/*",
// "create user/repos/fleet", "create repos/gitea_admin/fleet/contents", which is a commit.
// Names of tokens have a random part, so that they are left out.
func GiteaCall(request *http.Request) (verb, object string, ok bool) {
	words := strings.Split(cutPrefix(request.URL.Path, "/api/v1/"), "/")
	for i, word := range words {
		if number.MatchString(word) {
			words[i] = "*"
		}
	}
	if request.Method == http.MethodPost && words[len(words)-1] != "tokens" {
		var made struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(body(request), &made)
		if made.Name != "" { // a commit has none
			words = append(words, made.Name)
		}
	}
	return methodVerb(request.Method), strings.Join(words, "/"), true
}
