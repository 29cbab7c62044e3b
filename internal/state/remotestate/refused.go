package remotestate

import "fmt"

// Reason is why a stored document is refused.
type Reason string

// The reasons.
const (
	Damaged         Reason = "damaged"
	NotAuthentic    Reason = "not authentic"
	Unauthenticated Reason = "unauthenticated" // of a format without authentication, and not known to the folder
	Empty           Reason = "empty"
	Older           Reason = "older"   // than what the folder has seen
	Changed         Reason = "changed" // the serial that the folder has seen, with another content
	Missing         Reason = "missing" // and the folder has seen one
)

// RefusedError means that what a store has is not taken for the state of the cluster. Neither the store nor the state
// folder was changed.
type RefusedError struct {
	Reason Reason
	Object string // its name in the store
	Store  string
	Why    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the object %s in %s is refused: %s. Nothing was changed: %s", e.Object, e.Store, e.Why, e.do())
}

// do is what the operator does next.
func (e *RefusedError) do() string {
	const push = "\"state push --force\" on a machine whose state folder is right writes it anew; \"state pull --version N\" " +
		"brings a kept version into a folder first (state show lists them)"
	switch e.Reason {
	case Unauthenticated:
		return "if no one else can write the store, \"state rekey --accept-unauthenticated\" writes it anew with an " +
			"authentication; so does a run on the machine that wrote it last"
	case Older, Changed:
		return "if that is intended, \"state pull --force\" takes the store's; " + push
	case Damaged, NotAuthentic, Empty, Missing:
	}
	return "find out who can write the store; " + push
}

func (p Place) refuse(name string, reason Reason, why string) error {
	return &RefusedError{Reason: reason, Object: name, Store: p.Store.String(), Why: why}
}

// recall refuses what contradicts that which the state folder has seen of the object before: an older one that was put
// in the place of a newer one, or nothing. What is not authenticated is taken only where the folder has the same.
func (p Place) recall(d Document, exists bool) error {
	last, err := p.seen()
	if err != nil {
		return err
	}
	refuse := func(reason Reason, why string, args ...any) error {
		return p.refuse(p.name(), reason, fmt.Sprintf(why, args...))
	}
	switch {
	case !exists && last.Serial > 0:
		return refuse(Missing, "it is gone, and %s has seen it with serial %d", p.Dir, last.Serial)
	case !exists:
		return nil
	case d.Format < authenticated && last.Format >= authenticated:
		return refuse(NotAuthentic, "it is of format %d, without authentication, and %s has seen it with one", d.Format, p.Dir)
	case d.Serial < last.Serial:
		return refuse(Older, "it has serial %d, and %s has seen it with serial %d", d.Serial, p.Dir, last.Serial)
	case d.Serial > 0 && d.Serial == last.Serial && d.Digest != last.Digest:
		return refuse(Changed, "it has serial %d as in %s, and another content", d.Serial, p.Dir)
	case d.Format < authenticated && d.Serial > last.Serial:
		return refuse(Unauthenticated, "an older release wrote it, without authentication: whoever can write the store can "+
			"have changed it")
	}
	return nil
}
