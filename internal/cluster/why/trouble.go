package why

import "strings"

// troubles are words of sentences that tell what does not belong to every bootstrap: first of those that are made
// here, then of what Kubernetes and Hetzner say themselves. The test of the recorded situations holds them to what is
// made here.
var troubles = []string{
	"out of stock", "has no host", "has no server type", "limit is reached", "limit of servers is reached",
	"limit an hour is used up",
	"does not accept", "token is not there", "cannot be", "refuses the order", "there is no image", "several images",
	"looks again within", "etcd is stopped", "is not healthy",
	"server is off; caph", "given up", "given it up", "its controllers do nothing", "hetzner's action",
	"gone from the hetzner project",
	"but it is not a node", "could not ask", "does not answer", "attachfailed", "is lost",
	"resource_unavailable", "limit_exceeded", "ratelimit", "rate limit", "quota", "denied", "forbidden", "unauthorized",
	"timed out",
	"crashloopbackoff", "imagepullbackoff",
}

// TroubleIn is the word of a sentence that names a trouble which does not pass by itself while a cluster is
// bootstrapped, as refused connections do; empty: none.
func TroubleIn(sentence string) string {
	sentence = strings.ReplaceAll(strings.ToLower(sentence), "does not answer yet", "")
	for _, word := range troubles {
		if strings.Contains(sentence, word) {
			return word
		}
	}
	return ""
}
