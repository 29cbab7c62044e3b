package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// deletionFailed begins the reason of CAPH's event about a server that it could not delete.
const deletionFailed = "FailedDelete"

// deleting is about a server whose Machine is deleted: under way, or refused by Hetzner.
func (s Situation) deleting(m member) Finding {
	f := Finding{What: "is being deleted", weight: weightNormal}
	if m.server == nil {
		return f
	}
	if s.protected(m) {
		return s.protectedServer()
	}
	about := func(c condition) bool {
		return c.kind == "HCloudTokenAvailable" || c.kind == "HetznerAPIReachable" ||
			c.reason == "HetznerSecretUnreachable" ||
			strings.Contains(strings.ToLower(c.message), "delet") && (c.severity == "Error" || c.severity == "Warning")
	}
	// What CAPH said when it made the server does not keep it from deleting it.
	said := slices.DeleteFunc(complaints(m.server), func(c condition) bool { return !about(c) })
	if c, ok := worst(said); ok {
		if codeOf(c.message) == "protected" || strings.Contains(c.message, "(protected") {
			return s.protectedServer()
		}
		return s.translate(m.server, c)
	}
	for _, e := range s.Events {
		if e.Kind == "HCloudMachine" && e.Name == m.server.GetName() && strings.HasPrefix(e.Reason, deletionFailed) {
			f.What, f.weight = fmt.Sprintf("its server is not deleted: %s; CAPH tries again", briefly(e.Message)), weightTrouble
		}
	}
	return f
}

func (s Situation) protected(m member) bool {
	id := capi.Text(m.server, "spec", "providerID")
	return id != "" && slices.ContainsFunc(s.Cloud,
		func(c Server) bool { return c.Protected && fmt.Sprintf("hcloud://%d", c.ID) == id })
}

func (s Situation) protectedServer() Finding {
	return Finding{
		What: "its server cannot be deleted: it is protected at Hetzner", Terminal: true, Seen: s.At, weight: weightTerminal,
		Do: "take the protection away in Hetzner's console, then run again",
	}
}
