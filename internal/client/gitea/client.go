// Package gitea asks a Gitea for access tokens and repositories, and has the rules by which one token is kept, and one
// repository filled.
package gitea

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Client speaks to the API of one Gitea as one of its users.
type Client struct {
	http           *http.Client
	where          string // for errors
	user, password string
}

// New makes a client. transport leads to the Gitea, whatever host a request names; where says which one it is.
func New(transport http.RoundTripper, where, user, password string) *Client {
	return &Client{http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the credentials go to no other address
	}}, where: where, user: user, password: password}
}

// Token is an access token as the API describes it.
type Token struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Value string `json:"sha1"` // only in the answer to its creation
	Ends  string `json:"token_last_eight"`
}

// Refused is an answer of Gitea that is no success.
type Refused struct {
	Asked, Where string
	Status       int
	Message      string
}

// Error implements error.
func (e *Refused) Error() string {
	s := fmt.Sprintf("%s at %s: %d %s", e.Asked, e.Where, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Final says whether the answer will be the same at the next request. Who is unknown stays so, and so does a user
// without the right, and a repository that cannot be used; everything else may pass.
func Final(err error) bool {
	if unusable := (*Unusable)(nil); errors.As(err, &unusable) {
		return true
	}
	var refused *Refused
	return errors.As(err, &refused) && refused.Status >= 400 && refused.Status < 500 &&
		refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusRequestTimeout &&
		refused.Status != http.StatusNotFound // before its start has ended Gitea knows no path of its API
}

// ErrNameTaken says that the user has a token of this name.
var ErrNameTaken = errors.New("there is a token of this name")

// host stands in the place of Gitea's address, which the transport knows.
const host = "http://gitea/api/v1"

// maxAnswer is far above what any of the requests is answered with.
const maxAnswer = 4 << 20

// ask sends a request, as the user or, with a token, as whom that is of. answer takes the body's JSON; nil: it is
// ignored.
func (c *Client) ask(ctx context.Context, method, path, token string, body, answer any) error {
	asked := method + " /api/v1" + path
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", asked, c.where, err)
		}
		sent = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, host+path, sent)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", asked, c.where, err)
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "token "+token)
	} else {
		request.SetBasicAuth(c.user, c.password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err // its URL has the host that stands for the address
		}
		return fmt.Errorf("%s at %s: %w", asked, c.where, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("%s at %s: read the answer: %w", asked, c.where, err)
	case response.StatusCode < 200 || response.StatusCode > 299:
		var said struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(data, &said) // an answer that is not of the API has no message
		return &Refused{Asked: asked, Where: c.where, Status: response.StatusCode, Message: said.Message}
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s at %s: the answer is not what Gitea's API says: %w", asked, c.where, unquoted(err))
	}
	return nil
}

// unquoted is an error of JSON without the text that it is about: that may be a token.
func unquoted(err error) error {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("no JSON at byte %d", syntax.Offset)
	}
	return errors.New("another JSON")
}

// Ready is nil if Gitea answers.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, http.MethodGet, "/version", "", nil, nil)
}

func (c *Client) tokens() string { return "/users/" + url.PathEscape(c.user) + "/tokens" }

// Mint creates a token. ErrNameTaken: there is one of this name.
func (c *Client) Mint(ctx context.Context, name string, scopes []string) (Token, error) {
	var t Token
	err := c.ask(ctx, http.MethodPost, c.tokens(), "", map[string]any{"name": name, "scopes": scopes}, &t)
	var refused *Refused
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest &&
		strings.Contains(refused.Message, "name has been used") {
		return Token{}, ErrNameTaken
	}
	if err == nil && t.Value == "" {
		err = fmt.Errorf("POST /api/v1%s at %s: the answer has no token", c.tokens(), c.where)
	}
	return t, err
}

// pageSize is how many tokens are asked for at once: no more than Gitea's default for a page at most.
const pageSize = 50

// maxPages ends a listing whose pages do not end.
const maxPages = 200

// Tokens lists the user's tokens whose names begin with a prefix.
func (c *Client) Tokens(ctx context.Context, prefix string) (found []Token, err error) {
	for page := 1; page <= maxPages; page++ {
		var some []Token
		query := url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(pageSize)}}
		if err := c.ask(ctx, http.MethodGet, c.tokens()+"?"+query.Encode(), "", nil, &some); err != nil {
			return nil, err
		}
		for _, t := range some {
			if strings.HasPrefix(t.Name, prefix) {
				found = append(found, t)
			}
		}
		if len(some) == 0 {
			return found, nil
		}
	}
	return nil, fmt.Errorf("GET /api/v1%s at %s: there is no end to the pages", c.tokens(), c.where)
}

// Delete deletes a token; one that is gone is deleted.
func (c *Client) Delete(ctx context.Context, t Token) error {
	err := c.ask(ctx, http.MethodDelete, c.tokens()+"/"+strconv.FormatInt(t.ID, 10), "", nil, nil)
	if notFound(err) {
		return nil
	}
	return err
}

// Knows says whether Gitea knows a token, whatever its scopes are.
func (c *Client) Knows(ctx context.Context, token string) (bool, error) {
	err := c.ask(ctx, http.MethodGet, "/repos/search?limit=1", token, nil, nil)
	refused := (*Refused)(nil)
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return false, nil
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden: // its scopes leave repositories out
		return true, nil
	}
	return err == nil, err
}
