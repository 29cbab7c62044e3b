package cloud

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

const testToken = "planted-api-token-8d1f"

// harness is a Cloud behind HTTP, a client that compares every exchange with the API's description, and the machines of
// its servers.
type harness struct {
	*hcloud.Client
	t        *testing.T
	cloud    *Cloud
	machines *machines
	endpoint string
	config   Config
}

// newHarness starts a Cloud for a test. A change may adapt its Config.
func newHarness(t *testing.T, changes ...func(*Config)) *harness {
	t.Helper()
	dir := t.TempDir()
	config := Config{
		Dir:                 dir,
		Token:               testToken,
		Listen:              listen,
		PublicServers:       netip.MustParsePrefix("127.41.4.0/22"),
		PublicLoadBalancers: netip.MustParsePrefix("127.41.2.0/24"),
		Latency:             InstantLatency(),
		RequestLog:          filepath.Join(dir, "requests.jsonl"),
		Log:                 slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, change := range changes {
		change(&config)
	}
	config.API = cmp.Or(config.API, APINovember2026)
	return startWorld(t, config)
}

func startWorld(t *testing.T, config Config) *harness {
	t.Helper()
	w := &harness{t: t, machines: &machines{running: map[int64]Server{}, ports: map[int64][]net.Listener{}}}
	config.Machine = w.machines
	w.config = config
	var err error
	if w.cloud, err = New(config); err != nil {
		t.Fatal(err)
	}
	if err := w.cloud.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.cloud.Handler()) // on 127.0.0.1
	w.endpoint = server.URL + "/v1"
	w.Client = w.client(testToken)
	t.Cleanup(func() {
		server.Close()
		if err := w.cloud.Close(); err != nil {
			t.Error(err)
		}
		w.machines.stopAll()
	})
	return w
}

// restart ends the Cloud as a crash of its process would, but for what it does at once, and starts
// another one on the same folder.
func (w *harness) restart() *harness {
	w.t.Helper()
	if err := w.cloud.Close(); err != nil {
		w.t.Fatal(err)
	}
	return startWorld(w.t, w.config)
}

func (w *harness) client(token string) *hcloud.Client {
	return hcloud.NewClient(
		hcloud.WithEndpoint(w.endpoint),
		hcloud.WithToken(token),
		hcloud.WithApplication("cloud-test", "1"),
		hcloud.WithHTTPClient(&http.Client{Transport: &conforming{t: w.t, api: w.config.API, next: http.DefaultTransport}}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(2 * time.Millisecond)}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: hcloud.ConstantBackoff(time.Millisecond), MaxRetries: 3}),
	)
}

// must ends the test on an error.
func must[T any](t *testing.T) func(value T, _ *hcloud.Response, err error) T {
	return func(value T, _ *hcloud.Response, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// done waits for actions to end well.
func (w *harness) done(actions ...*hcloud.Action) {
	w.t.Helper()
	if err := w.Action.WaitFor(w.t.Context(), actions...); err != nil {
		w.t.Fatal(err)
	}
}

// wants checks that an error has the API's code.
func wants(t *testing.T, code string, err error) {
	t.Helper()
	var known hcloud.Error
	if !errors.As(err, &known) || string(known.Code) != code {
		t.Errorf("the error is %v, not one with code %s", err, code)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come true that %s", what)
		}
		time.Sleep(2 * time.Millisecond) // nothing to watch: the state is another goroutine's
	}
}

// listen refuses addresses on which the lab must never listen.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !loopback.Contains(at.Addr()) {
		return nil, fmt.Errorf("listening on %q: not in %v", addr, loopback)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", addr)
}

// needsLoopback skips a test where only 127.0.0.1 answers, as on macOS.
func needsLoopback(t *testing.T) {
	t.Helper()
	probe, err := net.Listen("tcp", "127.41.0.1:0")
	if err != nil {
		t.Skipf("the whole of 127.0.0.0/8 is needed: %v", err)
	}
	probe.Close()
}

// conforming holds every exchange against the API's description.
type conforming struct {
	t    *testing.T
	api  API
	next http.RoundTripper
}

func (c *conforming) RoundTrip(request *http.Request) (*http.Response, error) {
	reply, err := c.next.RoundTrip(request)
	if err != nil {
		return reply, err
	}
	body, err := io.ReadAll(reply.Body)
	reply.Body.Close()
	reply.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return reply, nil // the client will meet the same error
	}
	if problem := conforms(c.api, request, reply, body); problem != nil {
		c.t.Errorf("%s %s → %d does not conform to the API's description: %v\n%s", request.Method, request.URL.Path,
			reply.StatusCode, problem, body)
	}
	return reply, nil
}

// descriptions are the API's at each date. testdata/README.md has the source of the first; what Hetzner's changelog says
// of the changes since is put into it for the later ones.
var descriptions = map[API]func() (*openapi3.T, error){
	APIFebruary2026: sync.OnceValues(func() (*openapi3.T, error) { return description(func(map[string]any) {}) }),
	APINovember2026: sync.OnceValues(func() (*openapi3.T, error) { return description(sinceFebruary2026) }),
}

// sinceFebruary2026 changes the description of February 2026 as the API has changed.
func sinceFebruary2026(spec map[string]any) {
	changeSchemas(spec) // 2026-07-01
	paths := spec["paths"].(map[string]any)
	paths["/load_balancers/{id}"].(map[string]any)["delete"].(map[string]any)["responses"].(map[string]any)["201"] =
		map[string]any{"description": "", "content": map[string]any{"application/json": map[string]any{"schema": map[string]any{
			"type": "object", "required": []any{"action"}, "properties": map[string]any{
				"action": map[string]any{"$ref": "#/components/schemas/action"}}}}}} // 2026-10-05
	delete(paths["/load_balancers/{id}"].(map[string]any)["delete"].(map[string]any)["responses"].(map[string]any), "204")
	for _, path := range []string{"/datacenters", "/datacenters/{id}"} { // 2026-10-01
		delete(paths[path].(map[string]any)["get"].(map[string]any)["responses"].(map[string]any), "200")
	}
}

// changeSchemas removes the property datacenter from every schema that has it, and adds an assignee of Primary IPs.
func changeSchemas(node any) {
	switch node := node.(type) {
	case []any:
		for _, n := range node {
			changeSchemas(n)
		}
	case map[string]any:
		if properties, ok := node["properties"].(map[string]any); ok {
			delete(properties, "datacenter")
		}
		// 2026-10-05: a load balancer can be the assignee
		if kind, ok := node["assignee_type"].(map[string]any); ok && kind["enum"] != nil {
			kind["enum"] = []any{"server", "load_balancer"}
		}
		if required, ok := node["required"].([]any); ok {
			node["required"] = slices.DeleteFunc(required, func(name any) bool { return name == "datacenter" })
		}
		for _, n := range node {
			changeSchemas(n)
		}
	}
}

func description(change func(spec map[string]any)) (*openapi3.T, error) {
	packed, err := os.Open("testdata/hetzner-openapi-2026-02.json.gz")
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	// kin-openapi supports status ranges in capitals only.
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte(`"4xx"`), []byte(`"4XX"`)), []byte(`"5xx"`), []byte(`"5XX"`))
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, err
	}
	change(spec)
	if data, err = json.Marshal(spec); err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(data)
}

func conforms(api API, request *http.Request, reply *http.Response, body []byte) error {
	spec, err := descriptions[api]()
	if err != nil {
		return err
	}
	route, parameters := findRoute(spec, request.Method, strings.TrimPrefix(request.URL.Path, "/v1"))
	if route == nil {
		return errors.New("the description has no such operation")
	}
	return openapi3filter.ValidateResponse(request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters,
			Route: route},
		Status:  reply.StatusCode,
		Header:  reply.Header,
		Body:    io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// findRoute finds the operation of a path, preferring literal segments over parameters.
func findRoute(spec *openapi3.T, method, path string) (*routers.Route, map[string]string) {
	segments := strings.Split(path, "/")
	var best *routers.Route
	var bestParameters map[string]string
	for template, item := range spec.Paths.Map() {
		parts := strings.Split(template, "/")
		if len(parts) != len(segments) || item.GetOperation(method) == nil {
			continue
		}
		parameters, fits := map[string]string{}, true
		for i, part := range parts {
			if strings.HasPrefix(part, "{") {
				parameters[strings.Trim(part, "{}")] = segments[i]
			} else if part != segments[i] {
				fits = false
			}
		}
		if fits && (best == nil || len(parameters) < len(bestParameters)) {
			best = &routers.Route{Spec: spec, Path: template, PathItem: item, Method: method,
				Operation: item.GetOperation(method)}
			bestParameters = parameters
		}
	}
	return best, bestParameters
}

// machines are servers that send their name to every client of their private or public address.
type machines struct {
	mu      sync.Mutex
	running map[int64]Server
	ports   map[int64][]net.Listener
	events  []string
	serve   int   // port; 0: serve nothing
	refuse  error // what Start answers
}

func (m *machines) Start(ctx context.Context, server Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, "start "+server.Name)
	if m.refuse != nil {
		return m.refuse
	}
	m.running[server.ID] = server
	return m.open(ctx, server)
}

// open listens on the server's addresses.
func (m *machines) open(ctx context.Context, server Server) error {
	if m.serve == 0 {
		return nil
	}
	addresses := []netip.Addr{server.PublicIPv4, server.PrivateIP()}
	for _, ip := range addresses {
		if !ip.IsValid() {
			continue
		}
		listener, err := listen(ctx, netip.AddrPortFrom(ip, uint16(m.serve)).String())
		if err != nil {
			return err
		}
		m.ports[server.ID] = append(m.ports[server.ID], listener)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go answer(conn, server.Name)
			}
		}()
	}
	return nil
}

// answer sends the name after the client has finished sending.
func answer(conn net.Conn, name string) {
	defer conn.Close()
	heard, _ := io.ReadAll(conn)
	fmt.Fprintf(conn, "%s heard %s", name, heard)
}

func (m *machines) stop(event string, id int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf("%s %s", event, m.running[id].Name))
	delete(m.running, id)
	for _, port := range m.ports[id] {
		port.Close()
	}
	delete(m.ports, id)
	return nil
}

func (m *machines) Stop(_ context.Context, id int64, hard bool) error {
	if hard {
		return m.stop("cut", id)
	}
	return m.stop("stop", id)
}

func (m *machines) Delete(_ context.Context, id int64) error { return m.stop("delete", id) }

func (m *machines) AddressesChanged(_ context.Context, server Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf("addresses %s %d", server.Name, len(server.Private)))
	return nil
}

func (m *machines) stopAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ports := range m.ports {
		for _, port := range ports {
			port.Close()
		}
	}
}

// history is the sequence of calls to the machines.
func (m *machines) history() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.events, ", ")
}

// Helpers that create what most tests need.

func (w *harness) network() *hcloud.Network {
	w.t.Helper()
	_, whole, _ := net.ParseCIDR("127.40.0.0/16")
	_, part, _ := net.ParseCIDR("127.40.64.0/25")
	return must[*hcloud.Network](w.t)(w.Network.Create(w.t.Context(), hcloud.NetworkCreateOpts{
		Name: "net", IPRange: whole,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: part,
			NetworkZone: hcloud.NetworkZoneEUCentral}},
	}))
}

// server creates a running server of a Talos snapshot.
func (w *harness) server(name string, change func(*hcloud.ServerCreateOpts)) *hcloud.Server {
	w.t.Helper()
	if err := w.cloud.EnsureSnapshot("talos", "amd64"); err != nil {
		w.t.Fatal(err)
	}
	snapshots := must[[]*hcloud.Image](w.t)(w.Image.List(w.t.Context(), hcloud.ImageListOpts{
		ListOpts:     hcloud.ListOpts{LabelSelector: "caph-image-name==talos"},
		Architecture: []hcloud.Architecture{hcloud.ArchitectureX86},
	}))
	opts := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx33"}, Image: snapshots[0],
		Location: &hcloud.Location{Name: "nbg1"},
	}
	if change != nil {
		change(&opts)
	}
	made := must[hcloud.ServerCreateResult](w.t)(w.Server.Create(w.t.Context(), opts))
	w.done(append(made.NextActions, made.Action)...)
	return must[*hcloud.Server](w.t)(w.Server.GetByID(w.t.Context(), made.Server.ID))
}
