package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// sessionLasts is how long a browser stays logged in.
	sessionLasts = 12 * time.Hour
	// sessionsMost is how many browsers of one role are logged in at once: the oldest makes room.
	sessionsMost = 200
)

// session is a browser that is logged in.
type session struct {
	identity Identity
	began    time.Time
}

// sessions are those of this process: a restart ends them. They are kept by the hash of their secret.
type sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]session
	key [32]byte // of the tokens against forged requests
}

func newSessions() *sessions {
	s := &sessions{all: map[[sha256.Size]byte]session{}}
	_, _ = rand.Read(s.key[:]) // never fails
	return s
}

// begin begins a session. Its secret is for the browser's cookie.
func (s *sessions) begin(who Identity, now time.Time) (secret string, _ Identity) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = base64.RawURLEncoding.EncodeToString(random)
	if until := now.Add(sessionLasts); who.Until.IsZero() || until.Before(who.Until) {
		who.Until = until
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest [sha256.Size]byte
	same := 0 // of the same role: readers do not end the sessions of operators
	for hash, one := range s.all {
		if now.After(one.identity.Until) {
			delete(s.all, hash)
			continue
		}
		if one.identity.Role != who.Role {
			continue
		}
		same++
		if first, ok := s.all[oldest]; !ok || one.began.Before(first.began) {
			oldest = hash
		}
	}
	if same >= sessionsMost {
		delete(s.all, oldest)
	}
	s.all[sha256.Sum256([]byte(secret))] = session{who, now}
	return secret, who
}

// find finds who a session is of.
func (s *sessions) find(secret string, now time.Time) (Identity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[sha256.Sum256([]byte(secret))]
	return one.identity, ok && now.Before(one.identity.Until)
}

func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sha256.Sum256([]byte(secret)))
}

// csrf is the token that a page of a session sends with what changes something. Another site cannot read it.
func (s *sessions) csrf(secret string) string {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
