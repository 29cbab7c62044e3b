package cloud

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// action is work that takes time. Its immediate changes are made before it begins; its effect changes the rest at its
// end.
type action struct {
	meta // Created is when it started

	Command   string                           `json:"command"`
	Status    string                           `json:"status"`
	Took      time.Duration                    `json:"took"`  // planned
	Began     time.Time                        `json:"began"` // zero while it waits for After
	Finished  *time.Time                       `json:"finished,omitempty"`
	Error     *schema.ActionError              `json:"error,omitempty"`
	Doomed    *schema.ActionError              `json:"doomed,omitempty"` // by a fault: how it will end
	Resources []schema.ActionResourceReference `json:"resources"`
	After     int64                            `json:"after,omitempty"` // begins when that one has ended
}

const (
	actionRunning = "running"
	actionSuccess = "success"
	actionError   = "error"
)

// keptActions is how many finished actions are remembered; the real API keeps them for 30 days.
const keptActions = 2000

// effect is what an action does at its end.
type effect struct {
	work func(ctx context.Context) error // without the lock; may be nil
	done func(failed bool)               // under the lock; may be nil
}

// on names a resource of an action.
func on(kind string, id int64) schema.ActionResourceReference {
	return schema.ActionResourceReference{ID: id, Type: kind}
}

func (a *action) concerns(kind string, id int64) bool {
	return slices.Contains(a.Resources, on(kind, id))
}

func (a *action) concernsKind(kind string) bool {
	return slices.ContainsFunc(a.Resources, func(r schema.ActionResourceReference) bool { return r.Type == kind })
}

// begin starts an action on the resources. Actions on one server run one after another, because its machine accepts one
// call at a time.
func (c *Cloud) begin(command string, resources ...schema.ActionResourceReference) *action {
	begun := &action{
		meta:      c.newMeta("", nil),
		Command:   command,
		Status:    actionRunning,
		Took:      c.config.Latency.of(command, c.random),
		Doomed:    c.faults.action(command),
		Resources: resources,
	}
	for _, other := range c.state.Actions {
		if other.Status == actionRunning && other.sharesServer(begun) {
			begun.After = max(begun.After, other.ID)
		}
	}
	c.state.Actions[begun.ID] = begun
	if begun.After == 0 {
		c.schedule(begun)
	}
	c.forgetOldActions()
	return begun
}

func (a *action) sharesServer(b *action) bool {
	return slices.ContainsFunc(a.Resources, func(r schema.ActionResourceReference) bool {
		return r.Type == kindServer && b.concerns(r.Type, r.ID)
	})
}

// schedule sets the action's clock. Clocks run only after Resume.
func (c *Cloud) schedule(a *action) {
	if a.Began.IsZero() {
		a.Began = now()
	}
	if !c.running {
		return
	}
	id, left := a.ID, time.Until(a.Began.Add(a.Took))
	c.background.Go(func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(left):
			c.complete(id)
		}
	})
}

// complete ends an action that is due: work without the lock, then the changes under it.
func (c *Cloud) complete(id int64) {
	c.mu.Lock()
	ending, ok := c.state.Actions[id]
	if !ok || ending.Status != actionRunning || c.ctx.Err() != nil {
		c.mu.Unlock()
		return
	}
	var last effect
	if prepare := c.effects[ending.Command]; prepare != nil {
		last = prepare(ending)
	}
	failure := ending.Doomed
	c.mu.Unlock()

	if failure == nil && last.work != nil {
		if err := last.work(c.ctx); err != nil {
			if c.ctx.Err() != nil {
				return // closing: Resume continues the action
			}
			c.config.Log.Warn("a simulated action failed", "command", ending.Command, "error", err)
			failure = &schema.ActionError{Code: "action_failed", Message: err.Error()}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	finished := now().UTC().Truncate(time.Second)
	ending.Finished = &finished
	ending.Status, ending.Error = actionSuccess, failure
	if failure != nil {
		ending.Status = actionError
	}
	if last.done != nil {
		last.done(failure != nil)
	}
	for _, next := range ordered(c.state.Actions) {
		if next.Status == actionRunning && next.After == id {
			next.After = 0
			if failure != nil && ending.Command == "create_server" {
				next.Doomed = &schema.ActionError{Code: "action_failed", Message: "the server could not be created"}
			}
			c.schedule(next)
		}
	}
	c.keep()
}

// forgetOldActions drops the oldest finished actions.
func (c *Cloud) forgetOldActions() {
	excess := len(c.state.Actions) - keptActions
	if excess <= 0 {
		return
	}
	for _, old := range ordered(c.state.Actions) {
		if old.Status != actionRunning {
			delete(c.state.Actions, old.ID)
			if excess--; excess == 0 {
				return
			}
		}
	}
}

// view is the action as the API returns it.
func (a *action) view() schema.Action {
	progress := 100
	if a.Status == actionRunning {
		progress = 0
		if !a.Began.IsZero() && a.Took > 0 {
			progress = int(min(99, 100*time.Since(a.Began)/a.Took))
		}
	}
	return schema.Action{
		ID:        a.ID,
		Status:    a.Status,
		Command:   a.Command,
		Progress:  progress,
		Started:   a.Created,
		Finished:  a.Finished,
		Error:     a.Error,
		Resources: a.Resources,
	}
}

// acted begins an action and returns the reply with it.
func (q *call) acted(command string, resources ...schema.ActionResourceReference) any {
	return map[string]any{"action": q.begin(command, resources...).view()}
}

// views are actions as the API returns them.
func views(actions []*action) []schema.Action {
	shown := make([]schema.Action, 0, len(actions))
	for _, one := range actions {
		shown = append(shown, one.view())
	}
	return shown
}

// listActions serves the lists of actions, all of which filter by id and status.
func (q *call) listActions(include func(*action) bool) (any, error) {
	var found []*action
	for _, one := range q.state.Actions {
		if include(one) && q.wants("id", idText(one.ID)) && q.wants("status", one.Status) {
			found = append(found, one)
		}
	}
	keys := sortKeys[*action]{
		"id":       func(a, b *action) int { return cmp.Compare(a.ID, b.ID) },
		"command":  func(a, b *action) int { return cmp.Compare(a.Command, b.Command) },
		"status":   func(a, b *action) int { return cmp.Compare(a.Status, b.Status) },
		"started":  func(a, b *action) int { return a.Created.Compare(b.Created) },
		"finished": func(a, b *action) int { return a.finished().Compare(b.finished()) },
	}
	if err := sortBy(found, q.query, keys); err != nil {
		return nil, err
	}
	page, about, err := paginate(found, q.query)
	if err != nil {
		return nil, err
	}
	return map[string]any{"actions": views(page), "meta": about}, nil
}

// wants says whether the query selects the value: by naming it, or by naming none.
func (q *call) wants(parameter, value string) bool {
	wanted := q.query[parameter]
	return len(wanted) == 0 || slices.Contains(wanted, value)
}

// finished is when the action ended; the zero time while it runs.
func (a *action) finished() time.Time {
	if a.Finished == nil {
		return time.Time{}
	}
	return *a.Finished
}

// getAction serves one action.
func (q *call) getAction(include func(*action) bool) (any, error) {
	text := q.r.PathValue("action")
	id, _ := strconv.ParseInt(text, 10, 64)
	found, ok := q.state.Actions[id]
	if !ok || !include(found) {
		return nil, notFound("action", text)
	}
	return map[string]any{"action": found.view()}, nil
}

// registerActions serves the actions of the whole project. The API returns only those named by id: listing all of them
// was removed in January 2025.
func (c *Cloud) registerActions() {
	every := func(*action) bool { return true }
	c.handle("GET /actions", func(q *call) (any, error) {
		if len(q.query["id"]) == 0 {
			gone := refuse("deprecated_api_endpoint",
				"listing all actions was removed: list them by id, or those of one kind of resource")
			gone.Details = &errorDetails{Announcement: "https://docs.hetzner.cloud/changelog"}
			return nil, gone
		}
		return q.listActions(every)
	})
	c.handle("GET /actions/{action}", func(q *call) (any, error) { return q.getAction(every) })
}
