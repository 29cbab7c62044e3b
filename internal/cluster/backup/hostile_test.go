package backup_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// maxTaken is what reading a small hostile file may allocate in total, freed or not (bytes). Each of them took more than
// a gigabyte, or would.
const maxTaken = 192 << 20

// taken is what reading a file allocates (bytes).
func taken(file []byte, identities ...age.Identity) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := read(file, identities...)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// begun is a tar with a header, to which an attacker adds entries.
func begun(t *testing.T) (*bytes.Buffer, *tar.Writer) {
	t.Helper()
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	put(t, w, "header.json", `{"format":1,"cluster":"k8s"}`)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return &file, w
}

func put(t *testing.T, w *tar.Writer, name, data string) {
	t.Helper()
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
}

// paxSparse appends an entry of a size that consists of a hole alone, as PAX has it: archive/tar does not write that.
func paxSparse(t *testing.T, file *bytes.Buffer, name string, size int) {
	t.Helper()
	records := ""
	for _, r := range [][2]string{{"GNU.sparse.major", "0"}, {"GNU.sparse.minor", "1"}, {"GNU.sparse.name", name},
		{"GNU.sparse.size", strconv.Itoa(size)}, {"GNU.sparse.numblocks", "1"},
		{"GNU.sparse.map", strconv.Itoa(size) + ",0"}} {
		body := " " + r[0] + "=" + r[1] + "\n"
		n := len(body) + len(strconv.Itoa(len(body)))
		n = len(body) + len(strconv.Itoa(n))
		records += strconv.Itoa(n) + body
	}
	var pax bytes.Buffer
	w := tar.NewWriter(&pax)
	put(t, w, "x", records)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	block := pax.Bytes()
	block[156] = 'x' // the type: attributes of the next entry
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block[:512] {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	file.Write(block)
	var entry bytes.Buffer
	w = tar.NewWriter(&entry)
	put(t, w, "placeholder", "")
	file.Write(entry.Bytes())
}

// TestHostileFilesTakeLittleMemory reads small files that would be large in memory.
func TestHostileFilesTakeLittleMemory(t *testing.T) {
	sparse, _ := begun(t)
	for i := range 40 {
		paxSparse(t, sparse, fmt.Sprintf("manifests/%d", i), 32<<20)
	}
	sparse.Write(make([]byte, 1024))
	if h := headersOf(t, sparse.Bytes()); len(h) != 41 || h[40].Size != 32<<20 {
		t.Fatalf("the attack is none: %d entries", len(h))
	}

	small, _ := begun(t) // each within the limit of an entry
	for i := range 10_000 {
		paxSparse(t, small, fmt.Sprintf("manifests/%d", i), 4<<10)
	}
	small.Write(make([]byte, 1024))

	aliases, w := begun(t)
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  namespace: d\na: &a \"" + strings.Repeat("x", 8<<10) +
		"\"\nb: [" + strings.Repeat("*a,", 100_000) + "*a]\n"
	put(t, w, "objects/d/ConfigMap/x.yaml", object)

	values, w2 := begun(t)
	put(t, w2, "inventory.json", `{"resources":[`+strings.Repeat("{},", 1_300_000)+`{}]}`)

	flow, w3 := begun(t)
	put(t, w3, "objects/d/ConfigMap/x.yaml", "a: ["+strings.Repeat("0,", 1_900_000)+"0]\n")

	for name, writer := range map[string]*tar.Writer{"aliases": w, "values": w2, "flow": w3} {
		if err := writer.Flush(); err != nil {
			t.Fatal(name, err)
		}
	}
	for name, file := range map[string][]byte{
		"sparse entries": sparse.Bytes(), "small sparse entries": small.Bytes(), "aliases": aliases.Bytes(), "values of JSON": values.Bytes(),
		"values of YAML": flow.Bytes(),
	} {
		n, err := taken(file)
		if !errors.As(err, new(*backup.DamagedError)) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s: it was read to its end: %v", name, err)
		}
		t.Logf("%s: %d kB of file, %d MB of memory: %.120v", name, len(file)>>10, n>>20, err)
		if n > maxTaken {
			t.Errorf("%s: %d MB were allocated", name, n>>20)
		}
	}
}

func headersOf(t *testing.T, file []byte) (all []*tar.Header) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(file))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// TestBounds has more of everything than a backup.
func TestBounds(t *testing.T) {
	for name, fill := range map[string]func(*tar.Writer){
		"entries": func(w *tar.Writer) {
			for i := range 1<<15 + 1 {
				put(t, w, "manifests/"+strconv.Itoa(i), "")
			}
		},
		"bytes in all": func(w *tar.Writer) {
			for i := range 17 {
				put(t, w, "manifests/"+strconv.Itoa(i), strings.Repeat("x", 4<<20))
			}
		},
		"bytes of an entry": func(w *tar.Writer) { put(t, w, "manifests/x", strings.Repeat("x", 4<<20+1)) },
		"name":              func(w *tar.Writer) { put(t, w, "manifests/"+strings.Repeat("x", 1<<10), "") },
		"twice":             func(w *tar.Writer) { put(t, w, "manifests/x", ""); put(t, w, "manifests/x", "") },
	} {
		file, w := begun(t)
		fill(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, _, err := read(file.Bytes())
		if !errors.As(err, new(*backup.DamagedError)) || strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPassphraseThatTakesTooMuch refuses a file that asks for gigabytes before its passphrase can be tried.
func TestPassphraseThatTakesTooMuch(t *testing.T) {
	header := "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 22\n" + strings.Repeat("A", 43) + "\n--- " +
		strings.Repeat("A", 43) + "\n" + strings.Repeat("x", 1024)
	word, err := backup.PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	n, err := taken([]byte(header), word)
	if err == nil || n > maxTaken {
		t.Errorf("%d MB, %v", n>>20, err)
	}
}

// FuzzBackup reads whatever comes as a backup: as a tar, and as a tar in age. It ends with an error or with a backup that
// has its manifest, and takes memory in proportion.
func FuzzBackup(f *testing.F) {
	identities, err := keys.ParseIdentities([]byte(goldenKey))
	if err != nil {
		f.Fatal(err)
	}
	seeds, err := filepath.Glob("testdata/format*-*.slipway")
	if err != nil || len(seeds) == 0 {
		f.Fatal(seeds, err)
	}
	for _, seed := range seeds {
		if strings.Contains(seed, "passphrase") {
			continue // half a second each
		}
		data, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	all, err := keys.ParseClusters([]byte(goldenKey), scope)
	if err != nil {
		f.Fatal(err)
	}
	by, err := all[0].Authenticator(keys.Backup)
	if err != nil {
		f.Fatal(err)
	}
	c := contents()
	c.Header.Environment = "lab"
	database := make([]byte, 512)
	sum := sha256.Sum256(database)
	var authentic bytes.Buffer
	if _, err := backup.Write(&authentic, backup.Seal{Unencrypted: true, Authenticator: &by}, c,
		bytes.NewReader(append(database, sum[:]...))); err != nil {
		f.Fatal(err)
	}
	f.Add(authentic.Bytes())
	// Whatever is authentic is what was written; the fuzzer has no key.
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := backup.Open(bytes.NewReader(data), identities...)
		if err != nil {
			return
		}
		c, err := a.Read(io.Discard, by)
		if err != nil {
			return
		}
		if c.Origin.Authenticated == backup.ByKey && !bytes.Contains(authentic.Bytes(), mustJSON(t, c.Header)) {
			t.Errorf("forged: %+v", c.Header)
		}
		if sum, err := hex.DecodeString(c.Snapshot.SHA256); err != nil || len(sum) != sha256.Size {
			t.Errorf("a backup without the sum of its snapshot: %+v", c.Snapshot)
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
