package remotestate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// network is between a run and its store: it can lose requests, and answers.
type network struct {
	objectstore.Store
	mu     sync.Mutex
	before error // nothing arrives
	after  error // what arrives is done, and the answer is lost
	puts   int   // that arrived
	// failed hears of every write that is lost, or whose answer is; nil: nothing does.
	failed chan struct{}
}

func (n *network) set(before, after error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before, n.after = before, after
}

func (n *network) state() (before, after error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.before, n.after
}

func (n *network) Get(ctx context.Context, name string) ([]byte, string, error) {
	if before, _ := n.state(); before != nil {
		return nil, "", before
	}
	return n.Store.Get(ctx, name)
}

func (n *network) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	before, after := n.state()
	if before != nil || after != nil {
		defer n.tell()
	}
	if before != nil {
		return "", before
	}
	written, err := n.Store.Put(ctx, name, data, version)
	n.mu.Lock()
	n.puts++
	n.mu.Unlock()
	if after != nil {
		return "", after
	}
	return written, err
}

func (n *network) tell() {
	if n.failed == nil {
		return
	}
	select {
	case n.failed <- struct{}{}:
	default:
	}
}

// mends ends what set began, once a write has failed.
func (n *network) mends() {
	<-n.failed
	n.set(nil, nil)
}

var errNetwork = errors.New("no route to host")

// machines are machines that share a store, each with a state folder of its own.
type machines struct {
	t     *testing.T
	store objectstore.Store
	key   *age.X25519Identity
	lease time.Duration
}

func newMachines(t *testing.T, lease time.Duration) *machines {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &machines{t: t, store: objectstore.Folder(filepath.Join(t.TempDir(), "store")), key: key, lease: lease}
}

// place is what a run on a machine works with.
func (m *machines) place(name string) (Place, *network) {
	n := &network{Store: m.store, failed: make(chan struct{}, 1)}
	return Place{Store: n, Cluster: "k8s", Environment: "hetzner", Keys: m.keys(),
		Dir: m.t.TempDir(), Lease: m.lease,
		Who: Who{Host: name, Machine: "boot of " + name, PID: 1, Command: "all"}}, n
}

func (m *machines) keys() Keys { return keysOf(m.t, m.key.String()) }

// keysOf are the keys of the tests' cluster in a file.
func keysOf(t testing.TB, file string) Keys {
	t.Helper()
	k, err := ReadKeys([]byte(file), keys.Scope{Environment: "hetzner", Cluster: "k8s"})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (m *machines) acquire(p Place) (context.Context, *Session) {
	m.t.Helper()
	ctx, s, err := Acquire(m.t.Context(), p, time.Minute, m.t.Logf)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.end)
	return ctx, s
}

func (m *machines) release(s *Session) {
	m.t.Helper()
	if err := s.Release(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) stored() Document {
	m.t.Helper()
	d, _, ok, err := Place{Store: m.store, Cluster: "k8s", Environment: "hetzner", Keys: m.keys()}.Document(m.t.Context())
	if err != nil || !ok {
		m.t.Fatalf("nothing is stored: %v", err)
	}
	return d
}

func (m *machines) content(d Document) Content {
	m.t.Helper()
	c, err := m.keys().open(d)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *machines) write(p Place, name, text string) {
	m.t.Helper()
	path := filepath.Join(p.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) has(p Place, name, want string) {
	m.t.Helper()
	if is, err := os.ReadFile(filepath.Join(p.Dir, name)); string(is) != want {
		m.t.Errorf("%s on %s is %q, not %q (%v)", name, p.Who.Host, is, want, err)
	}
}

// long is a lease that no test outlives.
const long = time.Hour

func TestStateFollowsTheRuns(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	m.write(a, "runs/1/log", "of this machine")
	_, s := m.acquire(a)
	m.write(a, "kubeconfig", "secret words")
	m.write(a, "restore/restore.json", "record")
	if err := s.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := m.stored()
	if got, want := m.content(d).names(), []string{"journal.json", "kubeconfig", "restore/restore.json"}; !slices.Equal(got, want) {
		t.Errorf("stored are %v, not %v", got, want)
	}
	if data, _, _ := m.store.Get(t.Context(), a.name()); strings.Contains(string(data), "secret") || len(data) == 0 {
		t.Error("what is stored can be read without a key")
	}
	first := d.Token
	if d.Holder == nil || d.Holder.Host != "a" || first < 1 {
		t.Errorf("the holder is %v, the token %d", d.Holder, d.Token)
	}
	m.release(s)
	if d := m.stored(); d.Holder != nil {
		t.Errorf("after its end, %v holds the lease", d.Holder)
	}

	b, _ := m.place("b")
	_, s = m.acquire(b)
	m.has(b, "kubeconfig", "secret words")
	m.has(b, "restore/restore.json", "record")
	if _, err := os.Stat(filepath.Join(b.Dir, "runs")); err == nil {
		t.Error("the records of runs have left their machine")
	}
	if err := os.Remove(filepath.Join(b.Dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	m.write(b, "journal.json", "two")
	m.release(s)

	_, s = m.acquire(a)
	m.has(a, "journal.json", "two")
	m.has(a, "runs/1/log", "of this machine")
	if _, err := os.Stat(filepath.Join(a.Dir, "kubeconfig")); err == nil {
		t.Error("a file that was removed on one machine stays on the other")
	}
	m.release(s)
	if d := m.stored(); d.Token != first+2 {
		t.Errorf("three runs had tokens from %d up to %d", first, d.Token)
	}
}

func TestOneWorksAndOneWaits(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	_, first := m.acquire(a)
	b, _ := m.place("b")
	said, got := make(chan string, 10), make(chan error, 1)
	go func() {
		_, s, err := Acquire(t.Context(), b, time.Minute, func(format string, args ...any) { said <- fmt.Sprintf(format, args...) })
		if err == nil {
			err = s.Release(context.Background())
		}
		got <- err
	}()
	line := <-said
	for _, says := range []string{"process 1 on a", "(all)", a.Store.String()} {
		if !strings.Contains(line, says) {
			t.Errorf("who waits does not say %q: %s", says, line)
		}
	}
	select {
	case err := <-got:
		t.Fatalf("the second run did not wait: %v", err)
	default:
	}
	m.release(first)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	_, first = m.acquire(a)
	if _, _, err := Acquire(t.Context(), b, 100*time.Millisecond, t.Logf); err == nil ||
		!strings.Contains(err.Error(), "process 1 on a") || !strings.Contains(err.Error(), "state unlock") {
		t.Errorf("waited in vain: %v", err)
	}
	m.release(first)
}

// TestTakeOver has the run that holds the lease cut off from its store for longer than the lease: another one takes its
// place, and the first can write nothing more and is stopped, before it could be replaced.
func TestTakeOver(t *testing.T) {
	const lease = 3 * time.Second
	m := newMachines(t, lease)
	a, network := m.place("a")
	m.write(a, "journal.json", "a")
	ended, first := m.acquire(a)
	stopped := make(chan time.Time, 1)
	context.AfterFunc(ended, func() { stopped <- time.Now() })
	network.set(errNetwork, nil)

	b, _ := m.place("b")
	_, second := m.acquire(b) // waits for the lease to end
	taken := time.Now()
	m.has(b, "journal.json", "a")
	if at := <-stopped; at.After(taken) {
		t.Errorf("the first run was stopped %s after the second had begun", at.Sub(taken))
	}
	if lost := (*LostError)(nil); !errors.As(context.Cause(ended), &lost) || !strings.Contains(lost.Why, errNetwork.Error()) {
		t.Errorf("the first run's context ended with %v", context.Cause(ended))
	}
	network.set(nil, nil) // it is back
	m.write(a, "journal.json", "late")
	before := network.puts
	for range 2 {
		if err := first.Push(t.Context()); err == nil {
			t.Error("the first run has written without its lease")
		}
	}
	if first.Guard() == nil {
		t.Error("the first run may go on")
	}
	if err := first.Release(context.Background()); err != nil || network.puts != before {
		t.Errorf("the first run has sent %d writes at its end, %v", network.puts-before, err)
	}
	m.write(b, "journal.json", "b")
	m.release(second)
	if is := string(m.content(m.stored())["journal.json"]); is != "b" {
		t.Errorf("stored is %q", is)
	}
	// The first run's machine works again: what it had alone is set aside.
	_, s := m.acquire(a)
	m.has(a, "journal.json", "b")
	m.has(a, "set-aside/journal.json", "late")
	m.release(s)
}

// TestFencing has a run that does not know that it has lost its lease, as after SIGSTOP: its next write is refused.
func TestFencing(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "a")
	ended, frozen := m.acquire(a)
	elsewhere := Place{Store: m.store, Cluster: "k8s", Environment: "hetzner", Keys: m.keys()}
	if was, err := elsewhere.Unlock(t.Context()); err != nil || was == nil {
		t.Fatal(err)
	}
	b, _ := m.place("b")
	_, second := m.acquire(b)
	m.write(a, "journal.json", "late")
	if err := frozen.Push(t.Context()); err == nil || !strings.Contains(err.Error(), "process 1 on b") {
		t.Errorf("a write without the lease: %v", err)
	}
	if ended.Err() == nil || frozen.Guard() == nil {
		t.Error("a run without its lease goes on")
	}
	m.has(b, "journal.json", "a")
	m.release(second)
}

// TestStoreIsAway has the store away for a while, shorter than the lease: a write waits for it, and the run goes on.
func TestStoreIsAway(t *testing.T) {
	m := newMachines(t, long)
	a, network := m.place("a")
	ctx, s := m.acquire(a)
	network.set(errNetwork, nil)
	m.write(a, "journal.json", "one")
	go network.mends()
	if err := s.Push(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", err, ctx.Err())
	}
	if is := string(m.content(m.stored())["journal.json"]); is != "one" {
		t.Errorf("stored is %q", is)
	}
	m.release(s)
}

// TestAnswersAreLost has writes that are done and whose answers are lost: they are not taken for another run's.
func TestAnswersAreLost(t *testing.T) {
	m := newMachines(t, long)
	a, network := m.place("a")
	ctx, s := m.acquire(a)
	for i, text := range []string{"one", "two"} {
		network.set(nil, errNetwork)
		m.write(a, "journal.json", text)
		go network.mends()
		if err := s.Push(ctx); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	network.set(nil, errNetwork)
	s.mu.Lock()
	if err := s.write(ctx, func(*Document) error { return nil }); err == nil {
		t.Error("the answer was not lost")
	}
	s.mu.Unlock()
	network.set(nil, nil)
	m.write(a, "journal.json", "three") // and the next write has other content
	if err := s.Push(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", err, ctx.Err())
	}
	if is := string(m.content(m.stored())["journal.json"]); is != "three" {
		t.Errorf("stored is %q", is)
	}
	network.set(nil, errNetwork)
	s.mu.Lock()
	if err := s.write(ctx, func(*Document) error { return nil }); err == nil {
		t.Error("the answer was not lost")
	}
	s.mu.Unlock()
	network.set(nil, nil)
	m.release(s) // right after a renewal whose answer was lost
	if d := m.stored(); d.Holder != nil {
		t.Errorf("%v still holds the lease", d.Holder)
	}
	network.set(nil, errNetwork)
	_, s, err := Acquire(t.Context(), a, time.Minute, t.Logf)
	network.set(nil, nil)
	if err == nil {
		m.release(s)
	}
	if err != nil && !errors.Is(err, errNetwork) {
		t.Errorf("%v", err)
	}
}

func TestAKilledRunOfThisMachineIsReplacedAtOnce(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	ended := endedProcess(t)
	a.Who.PID = ended
	m.write(a, "journal.json", "one")
	_, killed := m.acquire(a)
	killed.stop()
	m.write(a, "journal.json", "two") // and killed before it was stored
	a.Who.PID = os.Getpid()
	_, s := m.acquire(a)
	m.has(a, "journal.json", "two")
	if is := string(m.content(m.stored())["journal.json"]); is != "two" {
		t.Errorf("stored is %q", is)
	}
	m.release(s)
	// Of another machine with the same process id nothing is known.
	b, _ := m.place("b")
	b.Who.PID = ended
	_, other := m.acquire(b)
	other.stop()
	if _, _, err := Acquire(t.Context(), a, 200*time.Millisecond, t.Logf); err == nil {
		t.Error("the lease of another machine's process was taken")
	}
}

func endedProcess(t *testing.T) int {
	t.Helper()
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return p.Pid
}

func TestFolderAndStoreDiffer(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "a")
	_, s := m.acquire(a)
	m.release(s)
	// A folder that was never in the store.
	b, _ := m.place("b")
	m.write(b, "journal.json", "b")
	_, _, err := Acquire(t.Context(), b, time.Minute, t.Logf)
	diverged := (*DivergedError)(nil)
	if !errors.As(err, &diverged) || !strings.Contains(err.Error(), "state pull --force") {
		t.Fatalf("%v", err)
	}
	if d := m.stored(); d.Holder != nil || string(m.content(d)["journal.json"]) != "a" {
		t.Errorf("a refused run left the holder %v and %q", d.Holder, m.content(d))
	}
	m.has(b, "journal.json", "b")
	if err := b.Overwrite(m.stored()); err != nil {
		t.Fatal(err)
	}
	m.has(b, "journal.json", "a")
	m.has(b, "set-aside/journal.json", "b")
	// A folder that changed without the store, after a run that gave its lease back.
	m.write(a, "journal.json", "a2")
	_, s = m.acquire(b)
	m.write(b, "journal.json", "b2")
	m.release(s)
	if _, _, err := Acquire(t.Context(), a, time.Minute, t.Logf); !errors.As(err, &diverged) {
		t.Errorf("%v", err)
	}
}

func TestAPullThatWasCutOffIsMadeAgain(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	m.write(a, "kubeconfig", "one")
	_, s := m.acquire(a)
	m.release(s)
	b, _ := m.place("b")
	d := m.stored()
	if err := (synced{Store: b.Store.String(), Serial: d.Serial, Digest: d.Digest, Pulling: true}).write(b.Dir); err != nil {
		t.Fatal(err)
	}
	m.write(b, "journal.json", "one")
	m.write(b, "talosconfig", "of the state before")
	if _, is, err := b.Pull(t.Context()); err != nil || is != Behind {
		t.Fatalf("%s, %v", is, err)
	}
	m.has(b, "kubeconfig", "one")
	if _, err := os.Stat(filepath.Join(b.Dir, "talosconfig")); err == nil {
		t.Error("a file of the state before stays")
	}
}

func TestVersionsAreKept(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	for i := range versionsKept + 4 {
		_, s := m.acquire(a)
		m.write(a, "journal.json", fmt.Sprint("run ", i))
		m.release(s)
	}
	serials, err := a.Versions(t.Context())
	if err != nil || len(serials) != versionsKept {
		t.Fatalf("%d versions, %v", len(serials), err)
	}
	d, err := a.Version(t.Context(), serials[0])
	if err != nil {
		t.Fatal(err)
	}
	if is := string(m.content(d)["journal.json"]); is != fmt.Sprint("run ", serials[0]-1) || d.Serial != serials[0] {
		t.Errorf("version %d is of serial %d and has %q", serials[0], d.Serial, is)
	}
}

// TestAStateThatIsTooLarge ends a write at once: waiting does not make it smaller.
func TestAStateThatIsTooLarge(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	ctx, s := m.acquire(a)
	noise := make([]byte, 3<<20)
	for i := range 6 {
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		m.write(a, fmt.Sprint("copy", i), string(noise))
	}
	if err := s.Push(ctx); !errors.Is(err, objectstore.ErrTooLarge) || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
	m.write(a, "copy0", string(make([]byte, 5<<20)))
	if err := s.Push(ctx); err == nil || !strings.Contains(err.Error(), "copy0") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestDamagedAndForeign(t *testing.T) {
	m := newMachines(t, long)
	a, _ := m.place("a")
	m.write(a, "journal.json", "one")
	_, s := m.acquire(a)
	m.release(s)
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := m.place("b")
	b.Keys = keysOf(t, other.String())
	if _, _, err := Acquire(t.Context(), b, time.Minute, t.Logf); err == nil || !strings.Contains(err.Error(), "STATE_IDENTITY") {
		t.Errorf("with another key: %v", err)
	}
	for text, says := range map[string]string{
		"{":                  "state push --force",
		`{"format": 9}`:      "newer program",
		`{"hello": "world"}`: "is no state",
	} {
		_, version, err := m.store.Get(t.Context(), a.name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.store.Put(t.Context(), a.name(), []byte(text), version); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Acquire(t.Context(), a, time.Minute, t.Logf); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
