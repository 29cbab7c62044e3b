package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// OIDC verifies ID tokens of an issuer.
type OIDC struct {
	Issuer, ClientID string
	// Allowed are the users: an e-mail address that the issuer has verified, or a subject.
	Allowed []string
	// Client asks the issuer; nil: one with a time limit.
	Client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	tried    time.Time
	failed   error
}

const (
	// askAgain is how long an issuer that did not answer is left alone.
	askAgain = 5 * time.Second
	// issuerWithin is how long an issuer has to answer.
	issuerWithin = 10 * time.Second
)

// ErrIssuer is about an issuer that cannot be asked: the token may be right.
var ErrIssuer = errors.New("the OpenID Connect issuer does not answer, so the token cannot be verified")

// ready makes the verifier when it is needed first: an issuer that is away when serve starts may come back.
func (o *OIDC) ready() (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.verifier != nil {
		return o.verifier, nil
	}
	if time.Since(o.tried) < askAgain {
		return nil, o.failed
	}
	client := o.Client
	if client == nil {
		client = &http.Client{Timeout: issuerWithin}
	}
	// The provider fetches keys with this context for as long as it is used.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), client), o.Issuer)
	if err != nil {
		o.tried, o.failed = time.Now(), fmt.Errorf("%w: %w", ErrIssuer, err)
		return nil, o.failed
	}
	o.verifier = provider.Verifier(&oidc.Config{ClientID: o.ClientID})
	return o.verifier, nil
}

// looksLikeOne reports whether a text may be an ID token.
func looksLikeOne(text string) bool { return strings.Count(text, ".") == 2 }

// verify checks an ID token: issuer, audience, time, signature, and whether its user is allowed.
func (o *OIDC) verify(ctx context.Context, presented string) (Identity, error) {
	verifier, err := o.ready()
	if err != nil {
		return Identity{}, err
	}
	token, err := verifier.Verify(ctx, presented)
	if err != nil {
		return Identity{}, err
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, err
	}
	switch {
	case claims.Verified && strings.Contains(claims.Email, "@") && slices.Contains(o.Allowed, claims.Email):
		return Identity{Name: claims.Email, Until: token.Expiry}, nil
	// A subject is any text that the issuer chooses: one that looks like an address is not the user of that address.
	case !strings.Contains(token.Subject, "@") && slices.Contains(o.Allowed, token.Subject):
		return Identity{Name: token.Subject, Until: token.Expiry}, nil
	}
	return Identity{}, fmt.Errorf("user %q (%q) is not allowed: --oidc-allow names who is", claims.Email, token.Subject)
}
