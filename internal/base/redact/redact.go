// Package redact hides secrets in what leaves the process: messages, events, logs and journals. It learns them as they
// become known, also out of files.
package redact

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/slipway-k8s/slipway/flow"
)

// Redactor hides secrets in whatever leaves the process. It is the second line
// of defence: nothing that is written should contain one. It can be used by
// many at once, and learns secrets as they become known.
type Redactor struct {
	mu      sync.Mutex
	forms   []string // of secrets, the longest first
	replace atomic.Pointer[strings.Replacer]
}

// Learn adds secrets to those that are hidden, in every form in which others
// may write them. What is too short to be one is left out: hiding it would only
// mangle words.
func (r *Redactor) Learn(secrets ...string) {
	const shortest = 8
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		for _, form := range writtenForms(s) {
			if !slices.Contains(r.forms, form) {
				r.forms = append(r.forms, form)
			}
		}
	}
	// Of two that begin at the same place the longer one is meant.
	slices.SortStableFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range r.forms {
		pairs = append(pairs, form, "[hidden]")
	}
	r.replace.Store(strings.NewReplacer(pairs...))
}

// writtenForms are a secret as it is, as an address and a string of JSON have it, and in base64, alone and in the
// middle of something longer, as in a header of HTTP.
func writtenForms(secret string) []string {
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
	if quoted, err := json.Marshal(secret); err == nil {
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		bare := alphabet.WithPadding(base64.NoPadding)
		forms = append(forms, alphabet.EncodeToString([]byte(secret)), bare.EncodeToString([]byte(secret)))
		// Behind so many bytes of others, and before some more, these characters depend on the secret alone.
		for before := range 3 {
			text := bare.EncodeToString(append(make([]byte, before), secret...))
			first, last := (before*8+5)/6, (before+len(secret))*8/6
			forms = append(forms, text[first:last])
		}
	}
	return forms
}

// Text is a text without the secrets.
func (r *Redactor) Text(s string) string {
	if replace := r.replace.Load(); replace != nil {
		return replace.Replace(s)
	}
	return s
}

// Each hides them in texts of a larger whole.
func (r *Redactor) Each(texts ...*string) {
	for _, t := range texts {
		*t = r.Text(*t)
	}
}

// Event is an event without the secrets.
func (r *Redactor) Event(e flow.Event) flow.Event {
	e.Message, e.Err = r.Text(e.Message), r.Text(e.Err)
	return e
}

// Writer hides secrets in what libraries log, a line at a time as they write it.
func (r *Redactor) Writer(out io.Writer) io.Writer { return hidingWriter{r, out} }

type hidingWriter struct {
	Hide *Redactor
	out  io.Writer
}

func (w hidingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.out, w.Hide.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Journal hides secrets in what a journal keeps of errors and progress: a
// server may repeat a token in its complaint.
type Journal struct {
	flow.Journal
	Hide *Redactor
}

// Save saves the snapshot without the secrets.
func (j Journal) Save(ctx context.Context, s flow.Snapshot) error {
	return j.Journal.Save(ctx, j.without(s))
}

// Append records the change without the secrets.
func (j Journal) Append(ctx context.Context, change flow.Snapshot) error {
	return flow.Append(ctx, j.Journal, j.without(change))
}

// without is a copy of a snapshot without the secrets.
func (j Journal) without(s flow.Snapshot) flow.Snapshot {
	s.Steps = maps.Clone(s.Steps)
	for name, rec := range s.Steps {
		rec.Error, rec.Said = j.Hide.Text(rec.Error), j.Hide.Text(rec.Said)
		s.Steps[name] = rec
	}
	return s
}
