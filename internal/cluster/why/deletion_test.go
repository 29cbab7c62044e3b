package why

import (
	"strings"
	"testing"
	"time"
)

// deleted is a control plane of which the Machine of one server is deleted.
func deleted(complaints ...object) Situation {
	s := ordered(complaints...)
	s.Machines[0].Object["metadata"].(object)["deletionTimestamp"] = now.Format(time.RFC3339)
	s.Servers[0].Object["spec"].(object)["providerID"] = "hcloud://7"
	s.Cloud, s.CloudAt = []Server{{ID: 7, Name: "x7k2p", Status: running}}, now
	return s
}

// A deletion that Hetzner refuses ends a wait, or is named, in place of being waited for.
func TestARefusedDeletionIsNamed(t *testing.T) {
	protected := deleted()
	protected.Cloud[0].Protected = true
	another := deleted()
	another.Cloud = append(another.Cloud, Server{ID: 8, Name: "other", Protected: true})
	event := deleted()
	event.Events = []Event{{Kind: "HCloudMachine", Name: "x7k2p", Reason: "FailedDeleteHCloudServer",
		Message: "server is locked", Last: now}}
	for name, tt := range map[string]struct {
		s    Situation
		says string
		ends bool
	}{
		"under way":      {deleted(), "x7k2p: is being deleted", false},
		"protected":      {protected, "x7k2p: its server cannot be deleted: it is protected at Hetzner", true},
		"another one is": {another, "is being deleted", false},
		"CAPH says so": {deleted(condition3("ServerAvailable", "ServerDeleteFailed", "Error",
			"failed to delete server: delete is protected (protected, 1a2b)")), "it is protected", true},
		"the token is refused": {deleted(condition3("HCloudTokenAvailable", "HCloudCredentialsInvalid", "Error",
			"unauthorized")), "does not accept the token", true},
		"an event": {event, "its server is not deleted: server is locked", false},
		"it never had an image": {deleted(condition3("ServerCreateSucceeded", "ImageNotFound", "Error", "no image found")),
			"is being deleted", false},
		"the limit of its times": {deleted(condition3("ServerCreateSucceeded", "ServerLimitExceeded", "Error", "limit")),
			"is being deleted", false},
	} {
		a := Explain(tt.s)
		if got := a.Sentence(); !strings.Contains(got, tt.says) ||
			(a.Terminal(now) != nil || a.Terminal(time.Time{}) != nil) != tt.ends {
			t.Errorf("%s: %s; ends: %v", name, got, !tt.ends)
		}
	}
}
