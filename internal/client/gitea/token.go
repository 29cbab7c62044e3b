package gitea

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Store is where the token is kept for its consumers.
type Store interface {
	// Token reads the token; empty: there is none.
	Token(ctx context.Context) (string, error)
	// Keep writes a token where there is none. ErrKept: there is one, by now.
	Keep(ctx context.Context, token string) error
}

// ErrKept says that there is a token already.
var ErrKept = errors.New("there is a token already")

// Wanted says what a token is to be called, and to allow.
type Wanted struct {
	Prefix string // of the names of all tokens that are made for this purpose; a random part follows
	Scopes []string
}

// tidyWithin bounds the deletion of a token that could not be kept, when the time for everything else may be over.
const tidyWithin = 10 * time.Second

// attempts is how many names are tried: one that is taken is taken by chance.
const attempts = 3

// Ensure returns the token of the store. Where there is none it mints one and keeps it. A token in the store is never
// replaced. Of the tokens with the prefix, all but the kept one are deleted: those that an ended run had minted and not
// kept, and its own where another run was faster.
//
// It may be ended anywhere and be called again, and several may run at once: the store takes one token only, and no
// run deletes that one.
func Ensure(ctx context.Context, c *Client, store Store, want Wanted) (token string, err error) {
	if token, err = store.Token(ctx); err != nil {
		return "", err
	}
	if token == "" {
		if token, err = mint(ctx, c, store, want); err != nil {
			return "", err
		}
	}
	return token, tidy(ctx, c, want.Prefix, token)
}

// mint makes a token and keeps it. The store was asked just before: the answers of Gitea may have taken long.
func mint(ctx context.Context, c *Client, store Store, want Wanted) (string, error) {
	if err := c.Ready(ctx); err != nil {
		return "", err
	}
	if token, err := store.Token(ctx); err != nil || token != "" { // a parallel run was faster
		return token, err
	}
	var name string
	var minted Token
	var err error
	for range attempts {
		name = want.Prefix + strings.ToLower(rand.Text())
		if minted, err = c.Mint(ctx, name, want.Scopes); !errors.Is(err, ErrNameTaken) {
			break
		}
	}
	if err != nil {
		// Where the answer was lost there may be a token. It is deleted here if that succeeds, else by the next run.
		return "", errors.Join(err, drop(ctx, c, name, err))
	}
	if err = store.Keep(ctx, minted.Value); err == nil {
		return minted.Value, nil
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyWithin)
	defer cancel()
	kept, unread := store.Token(asking)
	switch {
	case unread != nil:
		// The token may have been kept all the same, so that it stays; else the next run deletes it.
		return "", fmt.Errorf("%w; whether it was kept is not known: %w", err, unread)
	case kept == minted.Value: // only the answer was lost
		return kept, nil
	}
	if failed := drop(ctx, c, name, nil); failed != nil {
		err = errors.Join(err, failed)
	} else if errors.Is(err, ErrKept) && kept != "" {
		return kept, nil
	}
	return "", err
}

// drop finds a token by its name and deletes it. After an answer of Gitea that there is none, it does not look.
func drop(ctx context.Context, c *Client, name string, after error) error {
	if refused := (*Refused)(nil); errors.As(after, &refused) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyWithin)
	defer cancel()
	if err := remove(ctx, c, name, func(t Token) bool { return t.Name == name }); err != nil {
		return fmt.Errorf("delete token %s, which nothing uses: %w; the next run deletes it", name, err)
	}
	return nil
}

// tidy deletes the tokens with the prefix, but for the kept one. Gitea tells the last characters of each.
func tidy(ctx context.Context, c *Client, prefix, kept string) error {
	err := remove(ctx, c, prefix, func(t Token) bool { return t.Ends == "" || !strings.HasSuffix(kept, t.Ends) })
	if err != nil {
		return fmt.Errorf("delete the tokens %s* that nothing uses: %w", prefix, err)
	}
	return nil
}

func remove(ctx context.Context, c *Client, prefix string, doomed func(Token) bool) error {
	all, err := c.Tokens(ctx, prefix)
	if err != nil {
		return err
	}
	for _, t := range all {
		if doomed(t) {
			if err := c.Delete(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}
