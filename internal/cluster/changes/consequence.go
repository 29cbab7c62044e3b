package changes

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/platform"
)

// Effect is what applying the manifests does to an object of a cluster that exists, in the words of the plan.
type Effect string

// The effects. The words are stable: programs read them.
const (
	EffectCreates   Effect = "creates"   // an object that the cluster does not have
	EffectChanges   Effect = "changes"   // an object in place; no server is replaced or removed
	EffectAdds      Effect = "adds"      // servers
	EffectReplaces  Effect = "replaces"  // servers, one after another
	EffectRemoves   Effect = "removes"   // servers
	EffectDeletes   Effect = "deletes"   // an object that is no longer in the manifests, with its servers
	EffectKeeps     Effect = "keeps"     // an object that is no longer in the manifests
	EffectImmutable Effect = "immutable" // none: the field cannot be changed, and the run refuses
)

// Consequence is one thing that applying the manifests does to a cluster that exists. The plan, the question before a
// run, the refusal of a run and the run itself all tell the same consequences, in the same words.
type Consequence struct {
	Effect Effect          `json:"effect"`
	Object platform.Object `json:"object"`
	Why    []string        `json:"why,omitempty"`   // what differs: "server type cx33 → cx43"
	Count  int             `json:"count,omitempty"` // of the servers that are added, replaced or removed
	Of     int             `json:"of,omitempty"`    // servers that the object has now
	// Servers are the live names of those that are replaced, or of those among which the provider chooses those that
	// it removes.
	Servers []string `json:"servers,omitempty"`
	// NewServers are the names of the servers that are created; "…" is what Cluster API appends.
	NewServers string `json:"newServers,omitempty"`
	// Refused is why it is not done, whatever was agreed to; empty: it is done with consent.
	Refused string `json:"refused,omitempty"`
	// Flaw is why it may never end with the versions that are installed; empty: nothing is known.
	Flaw string `json:"flaw,omitempty"`
	// Monthly is the difference that it makes to what the cluster costs a month; nil: none, or it is part of the bill.
	Monthly *hetzner.Price `json:"monthly,omitempty"`
	// Expected is about how long it takes; 0: not known, or no time worth telling.
	Expected time.Duration `json:"expectedNs,omitempty"`
	// Text is the whole of it in words, for programs that show it to people.
	Text string `json:"text"`

	before, after []hetzner.Order // what it costs
	uid           types.UID       // of what is deleted
}

// Destructive reports whether it is done with consent only: it deletes servers or objects, or it may never end. A
// template that nothing uses any more is deleted without.
func (c Consequence) Destructive() bool {
	deletes := c.Effect == EffectDeletes && !isTemplate(c.Object.Kind)
	return c.Effect == EffectReplaces || c.Effect == EffectRemoves || deletes || c.Flaw != ""
}

// Summary is what is done to what, and why: "removes 2 of the 5 servers of TalosControlPlane k8s-control-plane:
// replicas 5 → 3". It is the same as long as the consequence is: what a person agrees to.
func (c Consequence) Summary() string {
	what := c.Object.Kind + " " + c.Object.Name
	switch c.Effect {
	case EffectAdds:
		what = fmt.Sprintf("adds %s to %s", servers(c.Count), what)
	case EffectReplaces:
		what = fmt.Sprintf("replaces %s of %s one after another", share(c.Count, c.Of), what)
	case EffectRemoves:
		what = fmt.Sprintf("removes %s of %s", share(c.Count, c.Of), what)
	case EffectDeletes:
		what = "deletes " + what
		if c.Count > 0 {
			what += " and its " + servers(c.Count)
		}
	case EffectCreates:
		what = "creates " + what
		if c.Count > 0 {
			what += " with " + servers(c.Count)
		}
	case EffectChanges:
		what = fmt.Sprintf("changes %s in place", what)
	case EffectImmutable:
		what = "cannot change " + what
	default:
		what = fmt.Sprintf("%s %s", c.Effect, what)
	}
	if len(c.Why) == 0 {
		return what
	}
	return what + ": " + strings.Join(c.Why, ", ")
}

// String is the summary with the servers, the difference in price and the time.
func (c Consequence) String() string {
	var details []string
	if len(c.Servers) > 0 {
		names := strings.Join(c.Servers, ", ")
		if c.Effect == EffectRemoves {
			names = "of " + names
		}
		details = append(details, names)
	}
	if c.NewServers != "" {
		details = append(details, "new: "+c.NewServers)
	}
	if c.Monthly != nil {
		details = append(details, difference(*c.Monthly))
	}
	if c.Expected > 0 {
		details = append(details, "about "+config.Duration(c.Expected).String())
	}
	text := c.Summary()
	if len(details) > 0 {
		text += " (" + strings.Join(details, "; ") + ")"
	}
	if c.Flaw != "" {
		text += "; it may never end: " + c.Flaw
	}
	return text
}

// difference is "14.28 EUR a month more".
func difference(p hetzner.Price) string {
	switch {
	case p.Unknown:
		return "the difference in price is not known"
	case p.Monthly < 0:
		return fmt.Sprintf("%.2f %s a month less", -p.Monthly, p.Currency)
	}
	return fmt.Sprintf("%.2f %s a month more", p.Monthly, p.Currency)
}

func servers(n int) string {
	if n == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", n)
}

// share is "all 3 servers", or "2 of the 5 servers".
func share(n, of int) string {
	switch {
	case n == of && of == 1:
		return "the only server"
	case n == of:
		return "all " + servers(n)
	}
	return fmt.Sprintf("%d of the %s", n, servers(of))
}
