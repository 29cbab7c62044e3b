package cloud

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// raw sends a request as it is, with the token, and holds the reply against the API's description.
func (w *harness) raw(method, path, body string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.endpoint+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testToken)
	reply, err := (&conforming{t: w.t, api: w.config.API, next: http.DefaultTransport}).RoundTrip(request)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.StatusCode, string(data)
}

func TestWrongTokenIsUnauthorized(t *testing.T) {
	w := newHarness(t)
	_, err := w.client("another-token").Location.All(t.Context())
	wants(t, "unauthorized", err)
	if !regexp.MustCompile(`\(unauthorized, [0-9a-f]{16}\)$`).MatchString(err.Error()) {
		t.Errorf("the error reads %q", err)
	}
}

func TestWhatTheFakeDoesNotHave(t *testing.T) {
	w := newHarness(t)
	for _, path := range []string{"/servers/999", "/servers/nonsense", "/servers/999/actions", "/actions/999",
		"/networks/999/actions/1"} {
		if status, body := w.raw(http.MethodGet, path, ""); status != http.StatusNotFound ||
			!strings.Contains(body, `"not_found"`) {
			t.Errorf("GET %s → %d %s", path, status, body)
		}
	}
	if status, _ := w.raw(http.MethodPost, "/servers/999/actions/poweron", ""); status != http.StatusNotFound {
		t.Errorf("an action on a missing server answers %d", status)
	}
	// Outside of the API's description, hence not held against it.
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPatch, w.endpoint+"/nonsense", nil)
	request.Header.Set("Authorization", "Bearer "+testToken)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusNotFound || reply.Header.Get("Content-Type") != "application/json" {
		t.Errorf("an unknown path answers %d %s", reply.StatusCode, reply.Header.Get("Content-Type"))
	}
	for path, key := range map[string]string{"certificates": "certificates", "floating_ips": "floating_ips",
		"isos": "isos"} {
		if status, body := w.raw(http.MethodGet, "/"+path, ""); status != http.StatusOK ||
			!strings.Contains(body, `"`+key+`":[]`) {
			t.Errorf("GET /%s → %d %s", path, status, body)
		}
	}
}

func TestBadInput(t *testing.T) {
	w := newHarness(t)
	for _, test := range []struct{ method, path, body, code string }{
		{http.MethodPost, "/networks", `{"name":`, "json_error"},
		{http.MethodPost, "/networks", `{"name":7}`, "invalid_input"},
		{http.MethodPost, "/networks", `{"name":"n","ip_range":"10.0.0.0/16"}`, "invalid_input"},
		{http.MethodGet, "/servers?label_selector=a+b", "", "invalid_input"},
		{http.MethodGet, "/servers?sort=colour", "", "invalid_input"},
		{http.MethodGet, "/servers?page=0", "", "invalid_input"},
		{http.MethodGet, "/servers?per_page=many", "", "invalid_input"},
		{http.MethodGet, "/actions", "", "deprecated_api_endpoint"},
	} {
		if status, body := w.raw(test.method, test.path, test.body); status < 400 ||
			!strings.Contains(body, `"`+test.code+`"`) {
			t.Errorf("%s %s %s → %d %s", test.method, test.path, test.body, status, body)
		}
	}
	var refused struct {
		Error struct {
			Details struct{ Fields []struct{ Name string } }
		}
	}
	_, body := w.raw(http.MethodPost, "/placement_groups", `{"name":"","type":"spread"}`)
	if err := json.Unmarshal([]byte(body), &refused); err != nil || len(refused.Error.Details.Fields) != 1 ||
		refused.Error.Details.Fields[0].Name != "name" {
		t.Errorf("the details of an invalid input are %s", body)
	}
}

func TestPagesAndOrder(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.RateLimit = RateLimit{Limit: 10_000, Per: time.Hour} })
	ctx := t.Context()
	const count = 120
	for i := range count {
		must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
			Name: fmt.Sprintf("g%03d", i), Type: hcloud.PlacementGroupTypeSpread,
			Labels: map[string]string{"odd": strconv.Itoa(i % 2)},
		}))
	}
	all, err := w.PlacementGroup.All(ctx)
	if err != nil || len(all) != count {
		t.Fatalf("all pages together have %d groups, %v", len(all), err)
	}
	page := func(query string) (first string, length int, about hcloud.Pagination) {
		list, reply, err := w.PlacementGroup.List(ctx, mustOpts(query))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			first = list[0].Name
		}
		return first, len(list), *reply.Meta.Pagination
	}
	for _, test := range []struct {
		query  string
		first  string
		length int
		want   hcloud.Pagination
	}{
		{"page=1", "g000", 25, hcloud.Pagination{Page: 1, PerPage: 25, NextPage: 2, LastPage: 5, TotalEntries: count}},
		{"page=3 per_page=50", "g100", 20, hcloud.Pagination{Page: 3, PerPage: 50, PreviousPage: 2, LastPage: 3,
			TotalEntries: count}},
		{"per_page=500", "g000", 50, hcloud.Pagination{Page: 1, PerPage: 50, NextPage: 2, LastPage: 3, TotalEntries: count}},
		{"page=9", "", 0, hcloud.Pagination{Page: 9, PerPage: 25, PreviousPage: 5, LastPage: 5, TotalEntries: count}},
		{"sort=name:desc", "g119", 25, hcloud.Pagination{Page: 1, PerPage: 25, NextPage: 2, LastPage: 5,
			TotalEntries: count}},
		{"label=odd=1", "g001", 25, hcloud.Pagination{Page: 1, PerPage: 25, NextPage: 2, LastPage: 3,
			TotalEntries: count / 2}},
		{"name=g007", "g007", 1, hcloud.Pagination{Page: 1, PerPage: 25, LastPage: 1, TotalEntries: 1}},
	} {
		first, length, about := page(test.query)
		if first != test.first || length != test.length || about != test.want {
			t.Errorf("%s: %d groups from %q, %+v", test.query, length, first, about)
		}
	}
}

// mustOpts reads "page=1 per_page=2 sort=name:desc label=a=b name=c".
func mustOpts(text string) hcloud.PlacementGroupListOpts {
	var opts hcloud.PlacementGroupListOpts
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		number, _ := strconv.Atoi(value)
		switch key {
		case "page":
			opts.Page = number
		case "per_page":
			opts.PerPage = number
		case "sort":
			opts.Sort = []string{value}
		case "label":
			opts.LabelSelector = value
		case "name":
			opts.Name = value
		}
	}
	return opts
}

func TestRateLimit(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.RateLimit = RateLimit{Limit: 3, Per: time.Hour} })
	ctx := t.Context()
	var last *hcloud.Response
	for range 3 {
		_, reply, err := w.Location.List(ctx, hcloud.LocationListOpts{})
		if err != nil {
			t.Fatal(err)
		}
		last = reply
	}
	rate := last.Meta.Ratelimit
	if rate.Limit != 3 || rate.Remaining != 0 || time.Until(rate.Reset) < 50*time.Minute {
		t.Errorf("after the last request the budget is %+v", rate)
	}
	_, _, err := w.Location.List(ctx, hcloud.LocationListOpts{})
	wants(t, "rate_limit_exceeded", err)
}

func TestRateLimitRefills(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	budget := newBucket(RateLimit{Limit: 2, Per: 2 * time.Second}, begin)
	var took []bool
	for _, after := range []time.Duration{0, 0, 0, 1100 * time.Millisecond, 1200 * time.Millisecond, time.Hour, time.Hour,
		time.Hour} {
		took = append(took, budget.take(begin.Add(after), http.Header{}))
	}
	if want := []bool{true, true, false, true, false, true, true, false}; !slices.Equal(took, want) {
		t.Errorf("requests were taken as %v, not %v", took, want)
	}
}

func TestRequestLogHoldsNoSecret(t *testing.T) {
	w := newHarness(t)
	w.server("one", func(o *hcloud.ServerCreateOpts) { o.UserData = "planted-user-data" })
	data, err := os.ReadFile(w.config.RequestLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{testToken, "planted-user-data"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("the request log holds %q", secret)
		}
	}
	var creates []LoggedRequest
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	for lines.Scan() {
		var one LoggedRequest
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatalf("the line %q: %v", lines.Text(), err)
		}
		if one.Write != (one.Method != http.MethodGet) || !strings.HasPrefix(one.Actor, "cloud-test/1") || one.Time.IsZero() {
			t.Errorf("a line reads %+v", one)
		}
		if one.Write {
			creates = append(creates, one)
		}
	}
	if len(creates) != 1 || creates[0].Path != "/v1/servers" || creates[0].Status != http.StatusCreated {
		t.Errorf("the writes are %+v", creates)
	}
	info, err := os.Stat(w.config.RequestLog)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v", info.Mode(), err)
	}
}

func TestActionsOfAResource(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.server("one", nil)
	w.server("two", nil)
	w.done(must[*hcloud.Action](t)(w.Server.Poweroff(ctx, one)))
	commands := func(actions []*hcloud.Action, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range actions {
			names = append(names, a.Command)
			if a.Progress != 100 || a.Finished.IsZero() || a.Status != hcloud.ActionStatusSuccess {
				t.Errorf("the finished action is %+v", a)
			}
		}
		return strings.Join(names, " ")
	}
	if got := commands(w.Firewall.Action.All(ctx, hcloud.ActionListOpts{})); got != "" {
		t.Errorf("firewalls had %q", got)
	}
	if got := commands(w.Server.Action.All(ctx, hcloud.ActionListOpts{Sort: []string{"command:desc", "id"}})); got !=
		"stop_server start_server start_server create_server create_server" {
		t.Errorf("servers had %q", got)
	}
	got := commands(w.Server.Action.AllFor(ctx, one, hcloud.ActionListOpts{}))
	if got != "create_server start_server stop_server" {
		t.Errorf("the server had %q", got)
	}
	running, _, err := w.Server.Action.List(ctx,
		hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusRunning}})
	if err != nil || len(running) != 0 {
		t.Errorf("%d actions run, %v", len(running), err)
	}
	all, _, err := w.Server.Action.List(ctx, hcloud.ActionListOpts{})
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.FormatInt(all[0].ID, 10)
	for _, path := range []string{"/actions/" + id, "/servers/actions/" + id,
		"/servers/" + strconv.FormatInt(one.ID, 10) + "/actions/" + id} {
		if status, body := w.raw(http.MethodGet, path, ""); status != http.StatusOK ||
			!strings.Contains(body, "create_server") {
			t.Errorf("GET %s → %d %s", path, status, body)
		}
	}
	if status, _ := w.raw(http.MethodGet, "/networks/actions/"+id, ""); status != http.StatusNotFound {
		t.Errorf("a server's action is found among networks' (%d)", status)
	}
}

func TestOldActionsAreForgotten(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.RateLimit = RateLimit{Limit: 10_000, Per: time.Hour} })
	network := w.network()
	w.cloud.mu.Lock()
	first := w.cloud.begin("change_protection", on(kindNetwork, network.ID))
	first.Status = actionSuccess
	running := w.cloud.begin("change_protection", on(kindNetwork, network.ID))
	for range keptActions {
		w.cloud.begin("change_protection", on(kindNetwork, network.ID)).Status = actionSuccess
	}
	kept, forgotten, working := len(w.cloud.state.Actions), w.cloud.state.Actions[first.ID] == nil,
		w.cloud.state.Actions[running.ID] != nil
	w.cloud.mu.Unlock()
	if kept != keptActions || !forgotten || !working {
		t.Errorf("%d actions are kept, the oldest forgotten: %v, the running one kept: %v", kept, forgotten, working)
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := New(Config{PublicServers: netip.MustParsePrefix("10.0.0.0/24"),
		PublicIPv6: netip.MustParsePrefix("2001:db8::/64")})
	if err == nil {
		t.Fatal("an empty configuration is taken")
	}
	for _, part := range []string{"Dir", "Token", "Machine", "Listen", "PublicServers 10.0.0.0/24", "PublicLoadBalancers",
		"PublicIPv6"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %s: %v", part, err)
		}
	}
}

// A project can be left with few requests: they come back as before, or up to a lower limit.
func TestLowerBudget(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.RateLimit = RateLimit{Limit: 3600, Per: 1000 * time.Hour} })
	asked := func(limit, remaining int, full time.Duration) {
		t.Helper()
		_, reply, err := w.Location.List(t.Context(), hcloud.LocationListOpts{})
		if err != nil {
			t.Fatal(err)
		}
		rate := reply.Meta.Ratelimit
		if in := time.Until(rate.Reset); rate.Limit != limit || rate.Remaining != remaining || (in-full).Abs() > time.Hour {
			t.Errorf("the budget is %+v, full in %v; not %d of %d, full in %v", rate, in, remaining, limit, full)
		}
	}
	raise, err := w.cloud.LowerBudget(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked(3600, 0, 1000*time.Hour)
	_, _, err = w.Location.List(t.Context(), hcloud.LocationListOpts{})
	wants(t, "rate_limit_exceeded", err)
	raise()
	asked(3600, 3599, 0)
	if _, err := w.cloud.LowerBudget(50, 100); err != nil {
		t.Fatal(err)
	}
	asked(100, 49, 510*time.Hour)
	for _, wrong := range [][2]int{{-1, 0}, {101, 100}, {3601, 0}, {0, -1}} {
		if _, err := w.cloud.LowerBudget(wrong[0], wrong[1]); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}
