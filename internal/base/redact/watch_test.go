package redact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSecretsAreLearned(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	age := write("key.txt", "# public key: age1publicpublicpublic\nAGE-SECRET-KEY-1PLANTED\n")
	key := "LS0tLS1CRUdJTiBLRVktLS0tLQpUaGVLZXlJdHNlbGY9PQotLS0tLUVORCBLRVktLS0tLQo=" // PEM with TheKeyItself==
	write("management.kubeconfig", "users:\n- name: admin\n  user:\n    client-key-data: "+key+"\n    token: \"planted-token\"\n")
	write("talosconfig", "contexts:\n  k8s:\n    ca: public-certificate\n    key: planted-of-talos\n")
	write("journal.json", `{"token": "not-looked-at"}`)
	hide := &Redactor{}
	w := NewWatch(hide, []string{age, filepath.Join(dir, "missing"), ""}, []string{dir, filepath.Join(dir, "none")})
	for text, hidden := range map[string]bool{"AGE-SECRET-KEY-1PLANTED": true, key: true, "TheKeyItself==": true, "planted-token": true,
		"planted-of-talos": true, "age1publicpublicpublic": false, "public-certificate": false, "not-looked-at": false} {
		if got := hide.Text("a " + text + " b"); strings.Contains(got, text) == hidden {
			t.Errorf("%s: %s", text, got)
		}
	}
	write("kubeconfig", "    token: of-a-later-file\n")
	w.looked = time.Time{}
	w.Learn()
	if got := hide.Text("of-a-later-file"); got != "[hidden]" {
		t.Errorf("a later file: %s", got)
	}
	hide.Learn("with \"quotes\" & more")
	if got := hide.Text(`{"x":"with \"quotes\" \u0026 more"}`); got != `{"x":"[hidden]"}` {
		t.Errorf("in JSON: %s", got)
	}
}
