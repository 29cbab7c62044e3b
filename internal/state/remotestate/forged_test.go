package remotestate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// put puts an object into the store, as an attacker who can write it does.
func (m *machines) put(name string, data []byte) {
	m.t.Helper()
	_, version, err := m.store.Get(m.t.Context(), name)
	if err != nil {
		version = objectstore.None
	}
	if _, err := m.store.Put(m.t.Context(), name, data, version); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) get(name string) []byte {
	m.t.Helper()
	data, _, err := m.store.Get(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return data
}

// altered is a document with changed fields.
func altered(t testing.TB, data []byte, change func(map[string]any)) []byte {
	t.Helper()
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	change(fields)
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// files is everything in a state folder but what it remembers of the store.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "synced.json" {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func reasonOf(err error) Reason {
	refused, _ := errors.AsType[*RefusedError](err)
	if refused == nil {
		return ""
	}
	return refused.Reason
}

// TestForgedDocuments has whoever can write the store, and knows the public key, put documents of their own in the
// place of the state: they are refused by what looks and by what runs, and the state folder keeps all of its files. A
// push by force writes the state anew.
func TestForgedDocuments(t *testing.T) {
	set := func(fields map[string]any) func(*machines, []byte) []byte {
		return func(m *machines, is []byte) []byte {
			return altered(m.t, is, func(d map[string]any) {
				for name, value := range fields {
					if d[name] = value; value == nil {
						delete(d, name)
					}
				}
			})
		}
	}
	for name, c := range map[string]struct {
		forge func(m *machines, is []byte) []byte
		want  Reason
	}{
		"empty":                     {set(map[string]any{"sealed": nil, "serial": 99}), NotAuthentic},
		"empty, of the old format":  {set(map[string]any{"sealed": nil, "serial": 99, "format": 1, "authentication": nil}), Empty},
		"old format":                {set(map[string]any{"format": 1, "authentication": nil}), NotAuthentic},
		"old format, new serial":    {set(map[string]any{"format": 1, "authentication": nil, "serial": 99}), NotAuthentic},
		"old content, new serial":   {set(map[string]any{"serial": 99}), NotAuthentic},
		"without authentication":    {set(map[string]any{"authentication": nil}), NotAuthentic},
		"another holder":            {set(map[string]any{"token": 5}), NotAuthentic},
		"damaged":                   {func(*machines, []byte) []byte { return []byte("{") }, Damaged},
		"sealed with a public key":  {forgedByRecipient, NotAuthentic},
		"of another cluster":        {ofAnotherCluster, NotAuthentic},
		"an older one":              {func(m *machines, _ []byte) []byte { return m.get("hetzner/k8s/versions/00000001") }, Older},
		"empty, and authentic":      {emptyAndAuthentic, Empty},
		"same serial, other digest": {sameSerial, Changed},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachines(t, long)
			a, _ := m.place("a")
			for _, text := range []string{"one", "two"} {
				_, s := m.acquire(a)
				m.write(a, "journal.json", text)
				m.write(a, "kubeconfig", "kubeconfig")
				m.release(s)
			}
			before, right := files(t, a.Dir), m.stored()
			m.put(a.name(), c.forge(m, m.get(a.name())))
			_, _, _, err := a.Inspect(t.Context())
			if is := reasonOf(err); is != c.want {
				t.Errorf("a look: %q (%v), want %q", is, err, c.want)
			}
			if _, _, err := a.Pull(t.Context()); reasonOf(err) != c.want {
				t.Errorf("a pull: %v", err)
			}
			if _, _, err := Acquire(t.Context(), a, time.Minute, t.Logf); reasonOf(err) != c.want {
				t.Errorf("a run: %v", err)
			}
			if _, err := a.Push(t.Context(), time.Minute, false, t.Logf); reasonOf(err) != c.want {
				t.Errorf("a push: %v", err)
			}
			after := files(t, a.Dir)
			for path, text := range before {
				if after[path] != text {
					t.Errorf("%s is %q, not %q", path, after[path], text)
				}
			}
			if len(after) != len(before) {
				t.Errorf("the folder has %d files, not %d", len(after), len(before))
			}
			if c.want != Older && c.want != Changed {
				b, _ := m.place("b") // a machine that has seen nothing
				if _, _, _, err := b.Inspect(t.Context()); reasonOf(err) == "" {
					t.Errorf("a new machine: %v", err)
				}
				if left := files(t, b.Dir); len(left) > 0 {
					t.Errorf("a new machine has written %v", left)
				}
			}
			d, err := a.Push(t.Context(), time.Minute, true, t.Logf)
			if err != nil || d.Serial != right.Serial+1 {
				t.Fatalf("a push by force: serial %d, %v", d.Serial, err)
			}
			if is := string(m.content(m.stored())["journal.json"]); is != "two" {
				t.Errorf("stored is %q", is)
			}
		})
	}
}

// forgedByRecipient is a whole document by an attacker who has the public key alone.
func forgedByRecipient(m *machines, is []byte) []byte {
	attacker, err := age.GenerateX25519Identity()
	if err != nil {
		m.t.Fatal(err)
	}
	p, _ := m.place("attacker")
	p.Keys = keysOf(m.t, attacker.String())
	p.Keys.Recipients = []age.Recipient{m.key.Recipient()}
	var d Document
	if err := json.Unmarshal(is, &d); err != nil {
		m.t.Fatal(err)
	}
	d.Serial = 98
	return m.encoded(p, d, Content{"kubeconfig": []byte("of the attacker")})
}

// ofAnotherCluster is the document of another cluster with the same key, under this cluster's name.
func ofAnotherCluster(m *machines, _ []byte) []byte {
	p, _ := m.place("attacker")
	var err error
	p.Cluster = "shop"
	if p.Keys, err = ReadKeys([]byte(m.key.String()), keys.Scope{Environment: "hetzner", Cluster: "shop"}); err != nil {
		m.t.Fatal(err)
	}
	data := m.encoded(p, Document{Cluster: "shop", Environment: "hetzner", Serial: 98}, Content{"kubeconfig": []byte("shop")})
	return altered(m.t, data, func(d map[string]any) { d["cluster"] = "k8s" })
}

// emptyAndAuthentic is what a machine with the key would have to write to empty all folders.
func emptyAndAuthentic(m *machines, _ []byte) []byte {
	p, _ := m.place("a")
	return m.encoded(p, Document{Cluster: "k8s", Environment: "hetzner", Serial: 98}, Content{})
}

// sameSerial is another document of the serial that the folder has.
func sameSerial(m *machines, is []byte) []byte {
	p, _ := m.place("a")
	d, err := p.decode(p.name(), is)
	if err != nil {
		m.t.Fatal(err)
	}
	d.Serial--
	return m.encoded(p, d, Content{"kubeconfig": []byte("another")})
}

// encoded is the next document with a content.
func (m *machines) encoded(p Place, d Document, c Content) []byte {
	m.t.Helper()
	if err := p.fill(&d, c); err != nil {
		m.t.Fatal(err)
	}
	data, err := p.encode(d)
	if err != nil {
		m.t.Fatal(err)
	}
	return data
}

// TestADeletedObject is refused where the folder has seen one.
func TestADeletedObject(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	_, s := m.acquire(a)
	m.release(s)
	if err := m.store.Delete(t.Context(), a.name()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Acquire(t.Context(), a, time.Minute, t.Logf); reasonOf(err) != Missing {
		t.Errorf("%v", err)
	}
	if d, err := a.Push(t.Context(), time.Minute, true, t.Logf); err != nil || d.Serial != 2 {
		t.Errorf("serial %d, %v", d.Serial, err)
	}
	// The newest is restored to an older one on purpose.
	m.put(a.name(), m.get("hetzner/k8s/versions/00000002"))
	_, s = m.acquire(a)
	m.write(a, "journal.json", "three")
	m.release(s)
	m.put(a.name(), m.get("hetzner/k8s/versions/00000002"))
	if _, _, err := a.Pull(t.Context()); reasonOf(err) != Older {
		t.Errorf("%v", err)
	}
	if _, err := a.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.has(a, "journal.json", "one")
	m.has(a, "set-aside/journal.json", "three")
	_, s = m.acquire(a)
	m.release(s)
}

// TestAVersionOfAnotherName is an old version under the serial of a newer one.
func TestAVersionOfAnotherName(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	for _, text := range []string{"one", "two", "three"} {
		_, s := m.acquire(a)
		m.write(a, "journal.json", text)
		m.release(s)
	}
	m.put("hetzner/k8s/versions/00000002", m.get("hetzner/k8s/versions/00000001"))
	if _, err := a.Version(t.Context(), 2); reasonOf(err) != NotAuthentic {
		t.Errorf("%v", err)
	}
	if d, err := a.Version(t.Context(), 1); err != nil || d.Serial != 1 {
		t.Errorf("%d, %v", d.Serial, err)
	}
}

// TestTwoHolders deletes the object while a run holds the lease, and lets another run begin: the tokens begin at random
// numbers, and the holder is compared, so that the first has lost its lease at its next write.
func TestTwoHolders(t *testing.T) {
	for name, token := range map[string]int64{"another token": 0, "the same token": 1} {
		t.Run(name, func(t *testing.T) {
			m := newMachines(t, long)
			a, _ := m.place("a")
			m.write(a, "journal.json", "a")
			ended, first := m.acquire(a)
			if err := m.store.Delete(t.Context(), a.name()); err != nil {
				t.Fatal(err)
			}
			b, _ := m.place("b")
			d := Document{Cluster: "k8s", Environment: "hetzner", Token: token * (first.document.Token - 1)}
			if _, _, _, err := b.claim(t.Context(), d, objectstore.None); err != nil {
				t.Fatal(err)
			}
			if is := m.stored().Token == first.document.Token; is != (token == 1) {
				t.Fatalf("the tokens are the same: %t", is)
			}
			m.write(a, "journal.json", "late")
			if err := first.Push(t.Context()); err == nil || !strings.Contains(err.Error(), "process 1 on b") {
				t.Errorf("a write beside another holder: %v", err)
			}
			if ended.Err() == nil {
				t.Error("the first run goes on")
			}
		})
	}
}

// TestAnOlderObjectDuringARun ends the run that holds the lease.
func TestAnOlderObjectDuringARun(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	ended, s := m.acquire(a)
	older := m.get(a.name()) // with the same holder and token
	m.write(a, "journal.json", "two")
	if err := s.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.put(a.name(), older)
	m.write(a, "journal.json", "three")
	if err := s.Push(t.Context()); err == nil || ended.Err() == nil {
		t.Errorf("%v", err)
	}
}

// TestTheKeyOfOneCluster is a Job that has no other key.
func TestTheKeyOfOneCluster(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	_, s := m.acquire(a)
	m.release(s)
	b, _ := m.place("b")
	b.Keys = keysOf(t, m.keys().Clusters[0].Secret())
	if len(b.Keys.Identities) > 0 {
		t.Fatal("it has identities")
	}
	_, s = m.acquire(b)
	m.has(b, "journal.json", "one")
	m.write(b, "journal.json", "two")
	m.release(s)
	_, s = m.acquire(a)
	m.has(a, "journal.json", "two")
	m.release(s)
	if _, err := ReadKeys([]byte(m.keys().Clusters[0].Secret()), keys.Scope{Environment: "hetzner", Cluster: "shop"}); !errors.Is(
		err, keys.ErrOtherCluster) {
		t.Errorf("for another cluster: %v", err)
	}
}

func TestPostQuantumKeys(t *testing.T) {
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachines(t, long)
	a, _ := m.place("a")
	a.Keys = keysOf(t, hybrid.String())
	m.write(a, "journal.json", "one")
	_, s := m.acquire(a)
	m.release(s)
	b, _ := m.place("b")
	b.Keys = keysOf(t, a.Keys.Clusters[0].Secret())
	if _, _, err := b.Pull(t.Context()); err == nil || !strings.Contains(err.Error(), "the key of one cluster does not open it") {
		t.Errorf("%v", err)
	}
	b.Keys.Recipients = []age.Recipient{hybrid.Recipient()}
	if err := b.Keys.Check(); err == nil || !strings.Contains(err.Error(), "post-quantum") {
		t.Errorf("%v", err)
	}
}

// TestRekey replaces a key: afterwards the new one alone reads state and versions, and the old one nothing.
func TestRekey(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	for _, text := range []string{"one", "two", "three"} {
		_, s := m.acquire(a)
		m.write(a, "journal.json", text)
		m.release(s)
	}
	m.put("hetzner/k8s/versions/00000009", []byte("{}"))
	fresh, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	both := a
	both.Keys = keysOf(t, fresh.String()+"\n"+m.key.String())
	var said []string
	d, n, err := both.Rekey(t.Context(), time.Minute, false, func(format string, args ...any) { said = append(said, format) })
	if err != nil || d.Serial != 3 || d.Holder != nil || n != 2 || len(said) != 1 {
		t.Fatalf("serial %d, %d versions, %v, %v", d.Serial, n, said, err)
	}
	for _, key := range []*age.X25519Identity{fresh, m.key} {
		p := a
		p.Keys = keysOf(t, key.String())
		d, _, _, err := p.Document(t.Context())
		if err == nil {
			_, err = p.content(d)
		}
		version, versionErr := p.Version(t.Context(), 1)
		if versionErr == nil {
			_, versionErr = p.content(version)
		}
		if is := err == nil && versionErr == nil; is != (key == fresh) {
			t.Errorf("readable: %t (%v, %v)", is, err, versionErr)
		}
		if _, err := age.Decrypt(strings.NewReader(string(m.raw(a.name()).Sealed)), key); (err == nil) != (key == fresh) {
			t.Errorf("decrypted: %v", err)
		}
	}
}

// raw is a stored document, unchecked.
func (m *machines) raw(name string) (d Document) {
	m.t.Helper()
	if err := json.Unmarshal(m.get(name), &d); err != nil {
		m.t.Fatal(err)
	}
	return d
}

// TestLookReplacesNothing has a folder that has changed and one that has not.
func TestLookReplacesNothing(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	b, _ := m.place("b")
	m.write(a, "journal.json", "one")
	m.write(a, "talosconfig", "one")
	_, s := m.acquire(a)
	m.release(s)
	dir, _, is, err := b.Inspect(t.Context()) // an empty folder is filled
	if err != nil || dir != b.Dir || is != Behind {
		t.Fatalf("%s, %s, %v", dir, is, err)
	}
	m.has(b, "talosconfig", "one")
	_, s = m.acquire(a)
	m.write(a, "journal.json", "two")
	if err := os.Remove(filepath.Join(a.Dir, "talosconfig")); err != nil {
		t.Fatal(err)
	}
	m.release(s)
	m.write(b, "runs/1/log", "of this machine")
	before, err := Read(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	dir, _, _, err = b.Inspect(t.Context())
	if err != nil || dir == b.Dir {
		t.Fatalf("%s, %v", dir, err)
	}
	for name, want := range map[string]string{"journal.json": "two", "runs/1/log": "of this machine", "talosconfig": ""} {
		if is, _ := os.ReadFile(filepath.Join(dir, name)); string(is) != want {
			t.Errorf("%s of the view is %q, not %q", name, is, want)
		}
	}
	after, err := Read(b.Dir)
	if err != nil || after.Digest() != before.Digest() {
		t.Errorf("the folder has %v now, %v", after.names(), err)
	}
	// What was seen by a look is remembered.
	m.put(b.name(), m.get("hetzner/k8s/versions/00000001"))
	if _, _, err := b.Pull(t.Context()); reasonOf(err) != Older {
		t.Errorf("%v", err)
	}
}

// TestFilesAreSetAsideFirst has a pull cut off in the midst of its writes: what the folder had is set aside as a whole,
// and the next pull ends it.
func TestFilesAreSetAsideFirst(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	m.write(a, "kubeconfig", "one")
	_, s := m.acquire(a)
	m.release(s)
	b, _ := m.place("b")
	if _, _, err := b.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, s = m.acquire(a)
	m.write(a, "journal.json", "two")
	m.release(s)
	c, err := m.keys().open(m.stored())
	if err != nil || !slices.Equal(c.names(), []string{"journal.json", "kubeconfig"}) {
		t.Fatal(c.names(), err)
	}
	if err := b.setAside(c, "replaced"); err != nil {
		t.Fatal(err)
	}
	if err := b.remember(m.stored(), synced{Pulling: true}); err != nil {
		t.Fatal(err)
	}
	m.write(b, "journal.json", "two")
	if err := os.Remove(filepath.Join(b.Dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	if _, is, err := b.Pull(t.Context()); err != nil || is != Behind {
		t.Fatal(is, err)
	}
	m.has(b, "kubeconfig", "one")
	m.has(b, "replaced/kubeconfig", "one")
	m.has(b, "replaced/journal.json", "one")
}

// TestAnEmptiedFolder is not stored: it would empty those of all machines.
func TestAnEmptiedFolder(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	_, s := m.acquire(a)
	if err := os.Remove(filepath.Join(a.Dir, "journal.json")); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context()); err == nil || !strings.Contains(err.Error(), "has no file any more") {
		t.Errorf("%v", err)
	}
	if err := s.Release(context.Background()); err == nil {
		t.Error("the run does not say so at its end")
	}
	if d := m.stored(); d.Holder != nil || string(m.content(d)["journal.json"]) != "one" {
		t.Errorf("%v holds it", d.Holder)
	}
}
