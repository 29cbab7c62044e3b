package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// keysOften is how often the keys of an issuer are asked for at most, whatever tokens are presented.
	keysOften = time.Second
	// keysOld is the age from which the known keys are asked for again although one has the id that a token names.
	keysOld = time.Minute
	// keysMost is the largest answer with keys that is read, in bytes.
	keysMost = 1 << 20
)

var (
	// errNoKey is about a token that names a key which is not known.
	errNoKey = errors.New("it is signed with a key that the issuer does not have")
	// errSignature is about a token that the key which it names has not signed.
	errSignature = errors.New("its signature is wrong")
)

// keySet has the keys with which an issuer signs. It asks the issuer for them when a token names one that is not known,
// since issuers change their keys. All tokens that are presented meanwhile share one request.
type keySet struct {
	client     *http.Client
	url        string
	algorithms []jose.SignatureAlgorithm
	asking     chan struct{} // has room for the one that asks

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	asked  time.Time // when the last request ended
	times  int       // requests that ended
	failed error     // of the last request
}

func newKeySet(client *http.Client, url string, algorithms []jose.SignatureAlgorithm) *keySet {
	return &keySet{client: client, url: url, algorithms: algorithms, asking: make(chan struct{}, 1)}
}

// verify returns what a token says, where a key of the issuer has signed it. Its error is ErrIssuer where the keys
// cannot be asked for. Turn has room for those that may compare with the known keys at the same time; nil: all may.
func (k *keySet) verify(ctx context.Context, presented string, turn chan struct{}) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(presented, k.algorithms)
	if err != nil {
		return nil, err
	}
	payload, times, err := k.compare(ctx, signed, turn)
	switch {
	case errors.Is(err, errNoKey):
		err = k.renew(ctx, times)
	case errors.Is(err, errSignature) && k.old():
		err = k.renew(ctx, times)
	default:
		return payload, err
	}
	if err != nil {
		return nil, err
	}
	payload, _, err = k.compare(ctx, signed, turn)
	return payload, err
}

// old reports whether the keys were asked for so long ago that another one may have the same id now.
func (k *keySet) old() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.asked) > keysOld
}

// compare verifies a signature with the known keys. It returns besides after how many requests those are known.
func (k *keySet) compare(ctx context.Context, signed *jose.JSONWebSignature, turn chan struct{}) ([]byte, int, error) {
	if turn != nil {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	k.mu.Lock()
	keys, times := k.keys, k.times
	k.mu.Unlock()
	payload, err := verifyWith(keys, signed)
	return payload, times, err
}

func verifyWith(keys []jose.JSONWebKey, signed *jose.JSONWebSignature) ([]byte, error) {
	id := signed.Signatures[0].Header.KeyID // of a token in the compact form, which has one signature
	err := errNoKey
	for _, key := range keys {
		if id != "" && key.KeyID != id {
			continue
		}
		if payload, wrong := signed.Verify(key); wrong == nil {
			return payload, nil
		}
		if id != "" {
			err = errSignature
		}
	}
	return nil, err
}

// renew asks the issuer for its keys, but where a request has ended since the caller saw that so many had.
func (k *keySet) renew(ctx context.Context, seen int) error {
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	times, asked, failed := k.times, k.asked, k.failed
	k.mu.Unlock()
	if times != seen {
		return failed
	}
	select {
	case <-time.After(time.Until(asked.Add(keysOften))):
	case <-ctx.Done():
		return ctx.Err()
	}
	// The request is that of everyone who waits: it goes on when the client that made it needed is gone.
	keys, err := k.ask(context.WithoutCancel(ctx))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.times, k.asked, k.failed = k.times+1, time.Now(), err
	if err == nil {
		k.keys = keys
	}
	return err
}

func (k *keySet) ask(ctx context.Context) ([]jose.JSONWebKey, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: its keys: %w", ErrIssuer, err)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: its keys: %w", ErrIssuer, err)
	}
	defer response.Body.Close()
	var set jose.JSONWebKeySet
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	} else {
		err = json.NewDecoder(io.LimitReader(response.Body, keysMost)).Decode(&set)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: its keys at %s: %w", ErrIssuer, k.url, err)
	}
	return set.Keys, nil
}
