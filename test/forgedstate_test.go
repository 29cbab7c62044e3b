package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
)

// refusesForgedStates has an attacker who can write the store, and knows the public key, put documents in the place of
// the state that url has. A look and a run refuse each, and leave the state folder's files as they are.
func refusesForgedStates(t *testing.T, c *command, url string, key *age.X25519Identity, args []string) {
	t.Helper()
	right := httpObject(t, http.MethodGet, url, nil)
	defer func() { httpObject(t, http.MethodPut, url, right) }()
	kept := []string{"kubeconfig", "talosconfig", "journal.json"}
	read := func() (all [][]byte) {
		for _, name := range kept {
			data, err := os.ReadFile(filepath.Join(c.state, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data)
		}
		return all
	}
	before := read()
	for name, forged := range forgedStates(t, right, key) {
		httpObject(t, http.MethodPut, url, forged)
		out, err := c.exec(t.Context(), "status", "--lab")
		if !strings.Contains(out, "is refused") {
			t.Errorf("%s: status: %v\n%s", name, err, out)
		}
		if o := c.run(nil, args...); o.exit != 1 || !strings.Contains(o.output, "is refused") || len(o.steps("step-started")) > 0 {
			t.Errorf("%s: a run: exit %d\n%s", name, o.exit, o.end())
		}
		for i, data := range read() {
			if !bytes.Equal(data, before[i]) {
				t.Errorf("%s: %s was changed", name, kept[i])
			}
		}
		if is := httpObject(t, http.MethodGet, url, nil); !bytes.Equal(is, forged) {
			t.Errorf("%s: the object was written over", name)
		}
	}
}

// forgedStates are documents of an attacker, made from the right one.
func forgedStates(t *testing.T, right []byte, key *age.X25519Identity) map[string][]byte {
	t.Helper()
	with := func(from []byte, fields map[string]any) []byte {
		var d map[string]any
		if err := json.Unmarshal(from, &d); err != nil {
			t.Fatal(err)
		}
		for name, value := range fields {
			if d[name] = value; value == nil {
				delete(d, name)
			}
		}
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const serial = 1000
	content := remotestate.Content{"kubeconfig": []byte("of the attacker\n")}
	sealed := map[string]any{"sealed": sealedFor(t, key.Recipient(), content), "digest": content.Digest(), "serial": serial}
	unauthenticated := map[string]any{"format": 1, "authentication": nil}
	return map[string][]byte{
		"empty":                       with(right, map[string]any{"sealed": nil, "serial": serial}),
		"empty, of format 1":          with(with(right, unauthenticated), map[string]any{"sealed": nil, "serial": serial}),
		"sealed with the public key":  with(right, sealed),
		"the same, of format 1":       with(with(right, unauthenticated), sealed),
		"old content, a new serial":   with(right, map[string]any{"serial": serial}),
		"content of another cluster":  with(ofAnotherCluster(t, key), map[string]any{"cluster": "k8s"}),
		"document of another cluster": ofAnotherCluster(t, key),
	}
}

// sealedFor is a content as releases before format 2 sealed it: the public key is enough for that.
func sealedFor(t *testing.T, recipient age.Recipient, content remotestate.Content) []byte {
	t.Helper()
	var out bytes.Buffer
	encrypted, err := age.Encrypt(&out, recipient)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(encrypted)
	archive := tar.NewWriter(packed)
	for name, data := range content {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []io.Closer{archive, packed, encrypted} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// ofAnotherCluster is the state of another cluster of the same operator.
func ofAnotherCluster(t *testing.T, key *age.X25519Identity) []byte {
	t.Helper()
	of := keys.Scope{Environment: "lab", Cluster: "shop"}
	k, err := remotestate.ReadKeys([]byte(key.String()), of)
	if err != nil {
		t.Fatal(err)
	}
	p := remotestate.Place{Store: objectstore.Folder(t.TempDir()), Cluster: of.Cluster, Environment: of.Environment, Keys: k,
		Dir: t.TempDir(), Who: remotestate.Here("push")}
	if err := os.WriteFile(filepath.Join(p.Dir, "kubeconfig"), []byte("of shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Push(t.Context(), time.Minute, false, t.Logf); err != nil {
		t.Fatal(err)
	}
	data, _, err := p.Store.Get(t.Context(), remotestate.Name(of.Environment, of.Cluster))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// httpObject reads or writes an object of a store that asks for no credentials.
func httpObject(t *testing.T, method, url string, data []byte) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v", method, url, answer.Status, err)
	}
	return body
}
