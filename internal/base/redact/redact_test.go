package redact

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

func hiding() *Redactor {
	var r Redactor
	r.Learn(secret, "short", "")
	return &r
}

func TestRedactorHides(t *testing.T) {
	r := hiding()
	if got := r.Text("a " + secret + " and short words"); got != "a [hidden] and short words" {
		t.Errorf("got %q", got)
	}
	var out bytes.Buffer
	if n, err := r.Writer(&out).Write([]byte("log " + secret + "\n")); err != nil || n != len("log "+secret+"\n") ||
		out.String() != "log [hidden]\n" {
		t.Errorf("wrote %d, %v: %q", n, err, out.String())
	}
}

// What a server, a Secret or an HTTP header makes of a secret is hidden, too.
func TestRedactorHidesEncodedSecrets(t *testing.T) {
	const secret = "pa/ss+wörd?&=0123456789~x"
	r := &Redactor{}
	r.Learn(secret)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding,
		base64.RawURLEncoding} {
		for before := range 7 {
			for after := range 4 {
				text := encoding.EncodeToString([]byte("abcdefg"[:before] + secret + "xyz0"[:after]))
				hidden := r.Text("Secret: " + text + " of k8s")
				if !strings.HasPrefix(hidden, "Secret: ") || !strings.HasSuffix(hidden, " of k8s") ||
					!strings.Contains(hidden, "[hidden]") {
					t.Fatalf("of %s it makes %s", text, hidden)
				}
				// What is left is at most what is around it, with a few bits of the secret's ends.
				if left := len(hidden) - len("Secret: [hidden] of k8s"); left > (before+after)*4/3+6 {
					t.Errorf("of %s it leaves %s", text, hidden)
				}
			}
		}
	}
	for _, text := range []string{url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret))} {
		if hidden := r.Text("a " + text + " b"); hidden != "a [hidden] b" {
			t.Errorf("of %s it makes %s", text, hidden)
		}
	}
}
