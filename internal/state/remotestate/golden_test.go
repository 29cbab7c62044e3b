package remotestate

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// goldenKey is the key of testdata: 32 bytes of 0x42, as age writes them.
const goldenKey = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"

func golden(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFormat1 reads what the release before format 2 has written. A folder that was the same takes it and writes it
// anew; another one refuses it until the operator accepts it; and once a folder has seen it authenticated, it takes no
// other.
func TestFormat1(t *testing.T) {
	for _, inSync := range []bool{true, false} {
		m := newMachines(t, long)
		var err error
		if m.key, err = age.ParseX25519Identity(goldenKey); err != nil {
			t.Fatal(err)
		}
		m.put("hetzner/k8s/state", golden(t, "format1/state.json"))
		m.put("hetzner/k8s/versions/00000001", golden(t, "format1/version.json"))
		a, _ := m.place("a")
		if inSync {
			d := m.raw(a.name())
			for name, data := range m.content(d) {
				m.write(a, name, string(data))
			}
			if err := (synced{Store: a.Store.String(), Serial: d.Serial, Digest: d.Digest}).write(a.Dir); err != nil {
				t.Fatal(err)
			}
		} else {
			if _, _, err := Acquire(t.Context(), a, time.Minute, t.Logf); reasonOf(err) != Unauthenticated {
				t.Errorf("a new machine: %v", err)
			}
			if _, _, err := a.Rekey(t.Context(), time.Minute, false, t.Logf); reasonOf(err) != Unauthenticated {
				t.Errorf("rekey without consent: %v", err)
			}
			if _, n, err := a.Rekey(t.Context(), time.Minute, true, t.Logf); err != nil || n != 1 {
				t.Errorf("%d versions, %v", n, err)
			}
			if _, err := a.Version(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
		_, s := m.acquire(a)
		m.has(a, "journal.json", "{\"run\":2}\n")
		m.has(a, "restore/restore.json", "{}\n")
		m.release(s)
		if d := m.stored(); d.Format != Format || d.Serial != 2 {
			t.Errorf("stored is format %d, serial %d", d.Format, d.Serial)
		}
		m.put(a.name(), golden(t, "format1/state.json"))
		if _, _, _, err := a.Inspect(t.Context()); reasonOf(err) != NotAuthentic {
			t.Errorf("in sync %t: a document without authentication again: %v", inSync, err)
		}
	}
}

// A document of format 1 says of itself whose it is: that of another cluster, or of a rehearsal, is not taken with the
// operator's consent either.
func TestFormat1OfAnotherCluster(t *testing.T) {
	for _, other := range []string{`"cluster":"other"`, `"world":"lab"`} {
		m := newMachines(t, long)
		var err error
		if m.key, err = age.ParseX25519Identity(goldenKey); err != nil {
			t.Fatal(err)
		}
		field, _, _ := strings.Cut(other, ":")
		is := regexp.MustCompile(field+`: ?"[a-z0-9]*"`).ReplaceAll(golden(t, "format1/state.json"), []byte(other))
		if !bytes.Contains(is, []byte(other)) {
			t.Fatalf("the document has no %s", field)
		}
		m.put("hetzner/k8s/state", is)
		a, _ := m.place("a")
		if _, _, err := a.Rekey(t.Context(), time.Minute, true, t.Logf); reasonOf(err) != NotAuthentic {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// TestFormat2 reads a document that this format's first release has written: its authentication stays.
func TestFormat2(t *testing.T) {
	m := newMachines(t, long)
	p, _ := m.place("a")
	p.Keys = keysOf(t, goldenKey)
	d, err := p.decode(p.name(), golden(t, "format2/state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := p.content(d); err != nil || string(c["journal.json"]) != "{\"run\":2}\n" || d.Serial != 2 {
		t.Errorf("serial %d, %v, %v", d.Serial, c.names(), err)
	}
}
