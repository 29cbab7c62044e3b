package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Members are the users of an issuer that have a role.
type Members struct {
	// Users are e-mail addresses that the issuer has verified, and subjects.
	Users []string
	// Groups are values of the claim "groups".
	Groups []string
}

// OIDC verifies ID tokens of an issuer.
type OIDC struct {
	Issuer, ClientID string
	// Operators and Readers have those roles. A user who is both is an operator.
	Operators, Readers Members
	// Client asks the issuer; nil: one with a time limit.
	Client *http.Client

	mu     sync.Mutex
	keys   *keySet
	tried  time.Time
	failed error
}

const (
	// askAgain is how long an issuer that did not answer is left alone.
	askAgain = 5 * time.Second
	// issuerWithin is how long an issuer has to answer.
	issuerWithin = 10 * time.Second
	// tokenMost is the length of the longest ID token that is looked at, in bytes: that of the largest header.
	tokenMost = 16 << 10
)

// ErrIssuer is about an issuer that cannot be asked: the token may be right.
var ErrIssuer = errors.New("the OpenID Connect issuer does not answer, so the token cannot be verified")

// algorithms are those with a public key.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// ready asks the issuer where its keys are when that is needed first: one that is away when serve starts may come back.
func (o *OIDC) ready() (*keySet, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys != nil {
		return o.keys, nil
	}
	if time.Since(o.tried) < askAgain {
		return nil, o.failed
	}
	client := &http.Client{Timeout: issuerWithin}
	if o.Client != nil {
		*client = *o.Client
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = privately{client.Transport}
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), client), o.Issuer)
	var says struct {
		Keys       string                    `json:"jwks_uri"`
		Algorithms []jose.SignatureAlgorithm `json:"id_token_signing_alg_values_supported"`
	}
	if err == nil {
		err = provider.Claims(&says)
	}
	if err != nil {
		o.tried, o.failed = time.Now(), fmt.Errorf("%w: %w", ErrIssuer, err)
		return nil, o.failed
	}
	signs := slices.DeleteFunc(says.Algorithms, func(a jose.SignatureAlgorithm) bool { return !slices.Contains(algorithms, a) })
	if len(signs) == 0 {
		signs = []jose.SignatureAlgorithm{jose.RS256} // which every issuer has
	}
	o.keys = newKeySet(client, says.Keys, signs)
	return o.keys, nil
}

// looksLikeOne reports whether a text may be an ID token.
func looksLikeOne(text string) bool { return len(text) <= tokenMost && strings.Count(text, ".") == 2 }

// verified are the claims of a token whose signature has been verified.
type verified []byte

// VerifySignature implements oidc.KeySet.
func (v verified) VerifySignature(context.Context, string) ([]byte, error) { return v, nil }

// verify checks an ID token: signature, issuer, audience, time, and which role its user has. Turn is that of
// keySet.verify.
func (o *OIDC) verify(ctx context.Context, presented string, turn chan struct{}) (Identity, error) {
	keys, err := o.ready()
	if err != nil {
		return Identity{}, err
	}
	payload, err := keys.verify(ctx, presented, turn)
	if err != nil {
		return Identity{}, err
	}
	var signs []string
	for _, a := range keys.algorithms {
		signs = append(signs, string(a))
	}
	token, err := oidc.NewVerifier(o.Issuer, verified(payload),
		&oidc.Config{ClientID: o.ClientID, SupportedSigningAlgs: signs}).Verify(ctx, presented)
	if err != nil {
		return Identity{}, err
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
		Groups   groups `json:"groups"`
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, err
	}
	var names []string
	if claims.Verified && strings.Contains(claims.Email, "@") {
		names = append(names, claims.Email)
	}
	// A subject is any text that the issuer chooses: one that looks like an address is not the user of that address.
	if token.Subject != "" && !strings.Contains(token.Subject, "@") {
		names = append(names, token.Subject)
	}
	who := Identity{Name: "subject " + token.Subject, Until: token.Expiry}
	if len(names) > 0 {
		who.Name = names[0]
	}
	for _, members := range []struct {
		Role
		Members
	}{{Operator, o.Operators}, {Reader, o.Readers}} {
		who.Role = members.Role
		if i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(members.Users, n) }); i >= 0 {
			who.Name = names[i]
			return who, nil
		}
		if slices.ContainsFunc(claims.Groups, func(g string) bool { return slices.Contains(members.Groups, g) }) {
			return who, nil
		}
	}
	return Identity{}, fmt.Errorf("user %q (%q), of the groups %q, is not allowed: --oidc-allow, --oidc-reader and the "+
		"flags for groups name who is", claims.Email, token.Subject, claims.Groups)
}

// groups are those of a user. Some issuers write one group as a string.
type groups []string

// UnmarshalJSON implements json.Unmarshaler. A claim of another kind names no group.
func (g *groups) UnmarshalJSON(data []byte) error {
	var one string
	*g = nil
	if json.Unmarshal(data, (*[]string)(g)) != nil {
		*g = nil
		if json.Unmarshal(data, &one) == nil {
			*g = groups{one}
		}
	}
	return nil
}
