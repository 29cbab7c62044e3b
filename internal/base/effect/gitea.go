package effect

import (
	"net/http"
	"strings"
)

// GiteaCall names a request to Gitea's API: "create users/gitea_admin/tokens", "delete users/gitea_admin/tokens/*",
// "create user/repos/fleet", "create repos/gitea_admin/fleet/contents", which is a commit.
// Names of tokens have a random part, so that they are left out.
func GiteaCall(request *http.Request) (verb, object string, ok bool) {
	words := wordsOf(request, "/api/v1/")
	if request.Method == http.MethodPost && words[len(words)-1] != "tokens" {
		if name := madeName(request); name != "" { // a commit has none
			words = append(words, name)
		}
	}
	return methodVerb(request.Method), strings.Join(words, "/"), true
}
