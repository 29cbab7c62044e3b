package hetznertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

// Token is the one that the fakes are asked with.
const Token = "planted-token-of-the-tests"

// api is what the fakes share: a server on loopback that answers one request at a time, and what it was asked.
type api struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	writes   []string
	readOnly bool
}

// ReadOnly makes the token one for reading alone.
func (a *api) ReadOnly() { a.between(func() { a.readOnly = true }) }

// start begins to answer.
func (a *api) start(answer http.HandlerFunc) {
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// another one for each answer, which hcloud-go puts into the texts of errors
		w.Header().Set("X-Correlation-Id", fmt.Sprintf("%016x", rand.Uint64()))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.requests++
		if r.Method != http.MethodGet {
			a.writes = append(a.writes, r.Method+" "+r.URL.Path)
			if a.readOnly {
				refuse(w, http.StatusForbidden, "token_readonly", "the token is only allowed to perform GET requests")
				return
			}
		}
		answer(w, r)
	}))
}

// Client speaks to the fake through a transport; nil: the usual one. It polls fast and does not retry.
func (a *api) Client(transport http.RoundTripper) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(a.URL), hcloud.WithToken(Token),
		hcloud.WithHTTPClient(&http.Client{Transport: transport}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(time.Millisecond)}))
}

// between reads or changes the fake between two requests.
func (a *api) between(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
}

// Requests is how many there were.
func (a *api) Requests() (n int) {
	a.between(func() { n = a.requests })
	return n
}

// Writes lists the requests so far that were not GET.
func (a *api) Writes() (writes []string) {
	a.between(func() { writes = slices.Clone(a.writes) })
	return writes
}

// matches knows every selector; one that is none selects nothing.
func matches(selector string, of map[string]string) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(of))
}

func keep[T any](all []T, want func(T) bool) []T {
	kept := []T{}
	for _, v := range all {
		if want(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// decode reads the body of a request, or refuses the request.
func decode(w http.ResponseWriter, r *http.Request, body any) bool {
	err := json.NewDecoder(r.Body).Decode(body)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_input", err.Error())
	}
	return err == nil
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, schema.ErrorResponse{Error: schema.Error{Code: code, Message: message}})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
