package cloud

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// resource describes one kind of record to the code that serves all kinds alike.
type resource[R record] struct {
	kind string // singular; the JSON key of one, and the type in actions' resources: "server"
	path string // plural; the path and the JSON key of a list: "servers"

	all  map[int64]R
	view func(R) any // the record as the API shows it
	// filters are the query parameters that select records, beside name and label_selector, by the
	// value that the record has for them.
	filters map[string]func(R) string
	// hidden excludes records from a list unless the query selects them.
	hidden func(q *call, one R) bool
	// extra goes into a list's reply beside records and meta.
	extra map[string]any

	// update changes what a PUT contains beyond name and labels; nil: there is no PUT.
	update func(q *call, one R) error
	// nameless records have no name that could be changed or be in use.
	nameless bool
	// remove deletes; the reply is nil or carries an action. nil: there is no DELETE.
	remove func(q *call, one R) (any, error)
	// commands are the actions under /{path}/{id}/actions/{command}; nil: the kind has no actions.
	commands map[string]func(q *call, one R) (any, error)
}

// noUpdate is the update of a kind that has nothing but name and labels to change.
func noUpdate[R record](*call, R) error { return nil }

// register adds the resource to the API.
func register[R record](c *Cloud, res resource[R]) {
	root := "/" + res.path
	c.lists["GET "+root] = true
	c.handle("GET "+root, res.serveList)
	c.handle("GET "+root+"/{id}", func(q *call) (any, error) {
		one, err := res.find(q)
		if err != nil {
			return nil, err
		}
		return map[string]any{res.kind: res.view(one)}, nil
	})
	if res.update != nil {
		c.handle("PUT "+root+"/{id}", res.serveUpdate)
	}
	if res.remove != nil {
		c.handle("DELETE "+root+"/{id}", res.serveRemove)
	}
	if res.commands == nil {
		return
	}
	c.handle("POST "+root+"/{id}/actions/{command}", res.serveCommand)
	c.handle("GET "+root+"/actions", func(q *call) (any, error) {
		return q.listActions(func(a *action) bool { return a.concernsKind(res.kind) })
	})
	c.handle("GET "+root+"/actions/{action}", func(q *call) (any, error) {
		return q.getAction(func(a *action) bool { return a.concernsKind(res.kind) })
	})
	c.handle("GET "+root+"/{id}/actions/{action}", func(q *call) (any, error) {
		return q.getAction(func(a *action) bool { return a.concerns(res.kind, q.id()) })
	})
	// ServeMux cannot hold both /{id}/actions and /actions/{id}, as neither is the more specific.
	c.handle("GET "+root+"/{id}/{what}", func(q *call) (any, error) {
		if q.r.PathValue("what") != "actions" {
			return nil, unknownPath(q.r)
		}
		if _, err := res.find(q); err != nil {
			return nil, err
		}
		return q.listActions(func(a *action) bool { return a.concerns(res.kind, q.id()) })
	})
}

// find returns the record that the path names.
func (res resource[R]) find(q *call) (R, error) {
	one, ok := res.all[q.id()]
	if !ok {
		return one, notFound(res.kind, q.r.PathValue("id"))
	}
	return one, nil
}

func (res resource[R]) serveList(q *call) (any, error) {
	selected, err := parseSelector(q.query.Get("label_selector"))
	if err != nil {
		return nil, invalid("label_selector", "%v", err)
	}
	var found []R
	for _, one := range res.all {
		if selected.matches(one.base().Labels) && res.passes(q, one) {
			found = append(found, one)
		}
	}
	keys := sortKeys[R]{
		"id":      func(a, b R) int { return cmp.Compare(a.base().ID, b.base().ID) },
		"name":    func(a, b R) int { return cmp.Compare(a.base().Name, b.base().Name) },
		"created": func(a, b R) int { return a.base().Created.Compare(b.base().Created) },
	}
	if err := sortBy(found, q.query, keys); err != nil {
		return nil, err
	}
	page, about, err := paginate(found, q.query)
	if err != nil {
		return nil, err
	}
	views := make([]any, 0, len(page))
	for _, one := range page {
		views = append(views, res.view(one))
	}
	reply := map[string]any{res.path: views, "meta": about}
	maps.Copy(reply, res.extra)
	return reply, nil
}

// passes applies the filters of the query; a parameter given several times passes any of its values.
func (res resource[R]) passes(q *call, one R) bool {
	if !q.wants("name", one.base().Name) {
		return false
	}
	for parameter, value := range res.filters {
		if !q.wants(parameter, value(one)) {
			return false
		}
	}
	return res.hidden == nil || !res.hidden(q, one)
}

// renaming is what every PUT can carry.
type renaming struct {
	Name   *string            `json:"name"`
	Labels *map[string]string `json:"labels"`
}

func (res resource[R]) serveUpdate(q *call) (any, error) {
	one, err := res.find(q)
	if err != nil {
		return nil, err
	}
	var change renaming
	if err := q.decode(&change); err != nil {
		return nil, err
	}
	name := deref(change.Name)
	if res.nameless || name == "" {
		name = one.base().Name
	}
	if name != one.base().Name {
		if err := res.checkName(name); err != nil {
			return nil, err
		}
	}
	if change.Labels != nil {
		if err := checkLabels(*change.Labels); err != nil {
			return nil, err
		}
	}
	if err := res.update(q, one); err != nil {
		return nil, err
	}
	one.base().Name = name
	if change.Labels != nil {
		one.base().Labels = *change.Labels
	}
	return map[string]any{res.kind: res.view(one)}, nil
}

func (res resource[R]) serveRemove(q *call) (any, error) {
	one, err := res.find(q)
	if err != nil {
		return nil, err
	}
	if one.base().Protected {
		return nil, refuse("protected", "%s deletion is protected", res.kind)
	}
	return res.remove(q, one)
}

func (res resource[R]) serveCommand(q *call) (any, error) {
	command, ok := res.commands[q.r.PathValue("command")]
	if !ok {
		return nil, unknownPath(q.r)
	}
	one, err := res.find(q)
	if err != nil {
		return nil, err
	}
	return command(q, one)
}

// with is a command whose request has a B as its body.
func with[R record, B any](command func(q *call, one R, wanted B) (any, error)) func(*call, R) (any, error) {
	return func(q *call, one R) (any, error) {
		return decoded(func(q *call, wanted B) (any, error) { return command(q, one, wanted) })(q)
	}
}

// checkName refuses a name that is empty, too long or taken.
func (res resource[R]) checkName(name string) error {
	if name == "" || len(name) > 128 {
		return invalid("name", "must be 1 to 128 characters long")
	}
	for _, other := range res.all {
		if other.base().Name == name {
			return refuse("uniqueness_error", "%s name is already used", res.kind)
		}
	}
	return nil
}

// begin checks what every creation has and makes the new record's meta.
func (res resource[R]) begin(q *call, name string, labels *map[string]string) (meta, error) {
	if err := res.checkName(name); err != nil {
		return meta{}, err
	}
	var given map[string]string
	if labels != nil {
		given = *labels
	}
	if err := checkLabels(given); err != nil {
		return meta{}, err
	}
	return q.newMeta(name, given), nil
}

// changeProtection is the command of most kinds. The action is named after the kind.
func changeProtection[R record](kind string) func(q *call, one R) (any, error) {
	type request struct {
		Delete *bool `json:"delete"`
	}
	return with(func(q *call, one R, wanted request) (any, error) {
		if wanted.Delete != nil {
			one.base().Protected = *wanted.Delete
		}
		return q.acted("change_protection", on(kind, one.base().ID)), nil
	})
}

// ordered returns the records by id.
func ordered[R any](all map[int64]R) []R {
	found := make([]R, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		found = append(found, all[id])
	}
	return found
}

// byIDOrName finds a record that a request names by either. The command hcloud sends an id as a text.
func byIDOrName[R record](all map[int64]R, id int64, name string) (R, bool) {
	if id == 0 {
		id, _ = strconv.ParseInt(name, 10, 64) // 0: it is a name, and no record has that id
	}
	if one, ok := all[id]; ok {
		return one, true
	}
	// A name of digits alone arrives as an id (hcloud's schema.IDOrName cannot tell them apart).
	if name == "" && id != 0 {
		name = idText(id)
	}
	for _, one := range ordered(all) {
		if name != "" && one.base().Name == name {
			return one, true
		}
	}
	var none R
	return none, false
}

// unknownPath is the answer where the API has nothing, or nothing that is simulated.
func unknownPath(r *http.Request) error {
	return refuse("not_found", "the simulated API has no %s %s", r.Method, r.URL.Path)
}
