package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// place is a Store and what else a test wants to do in it.
type place struct {
	backup.Store
	names func(t *testing.T) []string     // of everything in it, drafts and uploads under way too
	put   func(t *testing.T, name string) // a file with some content
	bend  func(t *testing.T, name string) // changes a byte of a file
	// lets the requests fail that it picks, until it is called; nil: no such thing
	broke func(func(*http.Request) bool) func()
}

func folderPlace(t *testing.T) place {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	return place{
		Store: backup.Folder(dir),
		names: func(t *testing.T) []string {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return names
		},
		put: func(t *testing.T, name string) {
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte("content"),
				0o600)); err != nil {
				t.Fatal(err)
			}
		},
		bend: func(t *testing.T, name string) {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
}

const bucket = "backups"

// s3Place is a bucket of an S3 server, in memory.
func s3Place(t *testing.T) place {
	memory := s3mem.New()
	if err := memory.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	var broken atomic.Pointer[func(*http.Request) bool]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pick := broken.Load(); pick != nil && (*pick)(r) {
			_, _ = io.Copy(io.Discard, r.Body)
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	store, err := backup.NewS3("s3://"+bucket+"/of/k8s/", backup.S3Options{
		S3Options: objectstore.S3Options{Endpoint: server.URL, Region: "nbg1", AccessKey: "a", SecretKey: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(t *testing.T, query string) string {
		resp, err := http.Get(server.URL + "/" + bucket + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	put := func(t *testing.T, name string, content []byte) {
		if _, err := memory.PutObject(bucket, "of/k8s/"+name, map[string]string{}, bytes.NewReader(content),
			int64(len(content)), nil); err != nil {
			t.Fatal(err)
		}
	}
	return place{
		Store: store,
		names: func(t *testing.T) []string {
			var names []string
			for _, list := range []string{get(t, "?list-type=2"), get(t, "?uploads")} {
				for _, piece := range strings.Split(list, "<Key>")[1:] {
					key, _, _ := strings.Cut(piece, "</Key>")
					names = append(names, strings.TrimPrefix(key, "of/k8s/"))
				}
			}
			slices.Sort(names)
			return names
		},
		put: func(t *testing.T, name string) { put(t, name, []byte("content")) },
		bend: func(t *testing.T, name string) {
			object, err := memory.GetObject(bucket, "of/k8s/"+name, nil)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(object.Contents)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			put(t, name, data)
		},
		broke: func(pick func(*http.Request) bool) func() {
			broken.Store(&pick)
			return func() { broken.Store(nil) }
		},
	}
}

// everywhere runs a test in a folder and in a bucket.
func everywhere(t *testing.T, test func(*testing.T, place)) {
	t.Run("folder", func(t *testing.T) { test(t, folderPlace(t)) })
	t.Run("s3", func(t *testing.T) { test(t, s3Place(t)) })
}

func at(hour int) time.Time { return time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }

// save saves a backup of a cluster at an hour.
func save(ctx context.Context, to backup.Store, seal backup.Seal, cluster string, hour int,
	snapshot io.Reader) (backup.Stored, error) {
	c := contents()
	c.Header.Cluster, c.Header.Taken = cluster, at(hour)
	return backup.Save(ctx, to, seal, c, snapshot)
}

// TestSave saves for a recipient whose key is not here, and wants it verified all the same, found and whole.
func TestSave(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		if all, err := p.List(t.Context()); err != nil || len(all) > 0 {
			t.Fatalf("before: %v, %v", all, err)
		}
		key, db := identity(t), snapshot(t, 36<<20) // more than two parts of an upload
		stored, err := save(t.Context(), p, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, "k8s", 15,
			bytes.NewReader(db))
		if err != nil {
			t.Fatal(err)
		}
		name := "k8s-20260102T150000Z.slipway"
		if names := p.names(t); !slices.Equal(names, []string{name}) {
			t.Errorf("there lie %q", names)
		}
		all, err := p.List(t.Context())
		if err != nil || len(all) != 1 || all[0] != stored || stored.Name != name || stored.Cluster != "k8s" ||
			stored.Size < int64(len(db)) {
			t.Fatalf("saved %+v, found %+v, %v", stored, all, err)
		}
		file, err := p.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		data, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, err := read(data, key); err != nil || !bytes.Equal(got, db) {
			t.Errorf("read back: %v", err)
		}
		// A second run in the same second does not replace it.
		_, err = save(t.Context(), p, backup.Seal{Unencrypted: true}, "k8s", 15, bytes.NewReader(snapshot(t, 512)))
		if err == nil || !strings.Contains(err.Error(), "there already") {
			t.Errorf("a second time: %v", err)
		}
		if names := p.names(t); !slices.Equal(names, []string{name}) {
			t.Errorf("after a second time there lie %q", names)
		}
	})
}

// TestSealedForNobodyElse saves for every kind of recipient: the file is read back with none of their keys, and opens
// with each of them, and for no one more.
func TestSealedForNobodyElse(t *testing.T) {
	x, other := identity(t), identity(t)
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	seal, err := backup.PassphraseSeal("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	word, err := backup.PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	folder := backup.Folder(t.TempDir())
	for i, tt := range []struct {
		seal    backup.Seal
		keys    []age.Identity
		stanzas int
	}{
		{backup.Seal{Recipients: []age.Recipient{x.Recipient(), other.Recipient()}}, []age.Identity{x, other}, 2},
		{backup.Seal{Recipients: []age.Recipient{hybrid.Recipient()}}, []age.Identity{hybrid}, 1},
		{seal, []age.Identity{word}, 1},
	} {
		stored, err := save(t.Context(), folder, tt.seal, "k8s", i, bytes.NewReader(snapshot(t, 512)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(string(folder), stored.Name))
		if err != nil {
			t.Fatal(err)
		}
		if header, _, _ := bytes.Cut(data, []byte("\n---")); bytes.Count(header, []byte("\n-> ")) != tt.stanzas {
			t.Errorf("%d: sealed for others, too: %s", i, header)
		}
		for _, key := range tt.keys {
			if _, _, err := read(data, key); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}

// TestNothingIsLeft lets a backup fail at every point, and wants nothing left of it, and what was there
// untouched.
func TestNothingIsLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		open := backup.Seal{Unencrypted: true}
		if _, err := save(t.Context(), p, open, "k8s", 1, bytes.NewReader(snapshot(t, 512))); err != nil {
			t.Fatal(err)
		}
		before := p.names(t)
		db := snapshot(t, 18<<20) // more than one part of an upload
		damaged := slices.Clone(db)
		damaged[17<<20] ^= 1
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted")
		cases := map[string]struct {
			ctx  context.Context
			from io.Reader
			want string
		}{
			"the stream breaks": {t.Context(), io.MultiReader(bytes.NewReader(db[:17<<20]),
				iotest.ErrReader(errors.New("connection reset"))), "connection reset"},
			"the snapshot is cut":    {t.Context(), bytes.NewReader(db[:17<<20]), "not whole"},
			"the snapshot is broken": {t.Context(), bytes.NewReader(damaged), "does not match the checksum"},
			"interrupted": {ctx, io.MultiReader(bytes.NewReader(db[:17<<20]), readerFunc(func([]byte) (int, error) {
				cancel(interrupted)
				return 0, io.EOF
			}), bytes.NewReader(db[17<<20:])), "cancel"},
		}
		if p.broke == nil {
			delete(cases, "interrupted") // a folder asks only at its end
		}
		for name, tt := range cases {
			if _, err := save(tt.ctx, p, open, "k8s", 2, tt.from); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			if names := p.names(t); !slices.Equal(names, before) {
				t.Errorf("%s: there lie %q, before %q", name, names, before)
			}
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestStoreFails lets the S3 server fail request by request: each time with an error that names the place, and nothing
// left once it serves again what removes it.
func TestStoreFails(t *testing.T) {
	for name, tt := range map[string]struct {
		pick func(*http.Request) bool
		want string
	}{
		"list": {func(r *http.Request) bool { return r.URL.Query().Has("list-type") },
			"list the backups in s3://backups/of/k8s"},
		"begin": {func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploads") },
			"begin to upload s3://backups/of/k8s/k8s-"},
		"a part": {func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" },
			"upload part 2 of s3://backups/of/k8s/k8s-"},
		"complete": {func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") },
			"complete the upload"},
		"read back": {func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".partial")
		}, "read the backup back"},
		"copy": {func(r *http.Request) bool { return r.Header.Get("X-Amz-Copy-Source") != "" }, "name the backup"},
		"look for a twin": {func(r *http.Request) bool {
			return r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, ".slipway")
		}, "look for s3://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s3Place(t)
			p.put(t, "k8s-20260101T000000Z.slipway")
			var hits atomic.Int32
			stop := p.broke(func(r *http.Request) bool {
				hit := tt.pick(r)
				if hit {
					hits.Add(1)
				}
				return hit
			})
			_, err := save(t.Context(), p, backup.Seal{Unencrypted: true}, "k8s", 2, bytes.NewReader(snapshot(t, 18<<20)))
			stop()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if hits.Load() == 0 {
				t.Error("the fault was never met")
			}
			if names := p.names(t); !slices.Equal(names, []string{"k8s-20260101T000000Z.slipway"}) {
				t.Errorf("there lie %q", names)
			}
		})
	}
}

// TestAPassingFault wants an upload to outlive a store that says "slow down" once in a while.
func TestAPassingFault(t *testing.T) {
	p := s3Place(t)
	var n atomic.Int32
	p.broke(func(*http.Request) bool { return n.Add(1)%3 == 0 })
	if _, err := save(t.Context(), p, backup.Seal{Unencrypted: true}, "k8s", 2,
		bytes.NewReader(snapshot(t, 18<<20))); err != nil {
		t.Error(err)
	}
}

// TestAStoreThatStandsStill sends the first bytes of a backup and then nothing, without closing the connection.
func TestAStoreThatStandsStill(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Last-Modified", at(1).Format(http.TimeFormat))
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("the first bytes"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second): // for a test that waits for more
		}
	}))
	t.Cleanup(server.Close)
	store, err := backup.NewS3("s3://"+bucket+"/of", backup.S3Options{Stall: 50 * time.Millisecond,
		S3Options: objectstore.S3Options{Endpoint: server.URL, Region: "nbg1", AccessKey: "a", SecretKey: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	body, err := store.Open(t.Context(), "k8s.slipway")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if string(data) != "the first bytes" || err == nil || !strings.Contains(err.Error(), "read s3://"+bucket+
		"/of/k8s.slipway: the store stood still") {
		t.Errorf("%q, %v", data, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

// TestVerifiedBeforeNamed changes a byte between the write and the name: the backup must not appear.
func TestVerifiedBeforeNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		key := identity(t)
		bent := bending{p, func(name string) { p.bend(t, "."+name+".partial") }}
		_, err := save(t.Context(), bent, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, "k8s", 2,
			bytes.NewReader(snapshot(t, 1<<20)))
		var damage *backup.DamagedError
		if !errors.As(err, &damage) || !strings.Contains(err.Error(), "read the backup back") {
			t.Errorf("got %v", err)
		}
		if names := p.names(t); len(names) > 0 {
			t.Errorf("there lie %q", names)
		}
	})
}

// bending is a store that does not keep what it was given.
type bending struct {
	backup.Store
	bend func(name string)
}

func (b bending) Begin(ctx context.Context, name string) (backup.Draft, error) {
	d, err := b.Store.Begin(ctx, name)
	return bendingDraft{d, func() { b.bend(name) }}, err
}

type bendingDraft struct {
	backup.Draft
	bend func()
}

func (d bendingDraft) Finish() error {
	err := d.Draft.Finish()
	d.bend()
	return err
}

// TestPrune keeps the newest of one cluster, and everything else that is there.
func TestPrune(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		others := []string{
			"k8s-2-20250101T000000Z.slipway", // another cluster, whose name begins alike
			"k8s-20250101T000000Z.slipway.gz", "k8s.slipway", "notes.txt", ".k8s-20250101T000000Z.slipway.partial",
			"other-20250101T000000Z.slipway",
		}
		for _, name := range others {
			p.put(t, name)
		}
		for _, name := range []string{"k8s-20250101T000000Z.slipway", "k8s-20250201T000000Z.slipway",
			"k8s-20250301T000000Z.slipway"} {
			p.put(t, name)
		}
		// Its clock went wrong: it seems to be the oldest.
		newest := "k8s-20240101T000000Z.slipway"
		p.put(t, newest)
		gone, err := backup.Prune(t.Context(), p, "k8s", newest, 2)
		if err != nil || len(gone) != 2 || gone[0].Name != "k8s-20250101T000000Z.slipway" ||
			gone[1].Name != "k8s-20250201T000000Z.slipway" {
			t.Errorf("removed %+v, %v", gone, err)
		}
		want := append([]string{newest, "k8s-20250301T000000Z.slipway"}, others...)
		slices.Sort(want)
		names := p.names(t)
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("there lie %q, want %q", names, want)
		}
		if gone, err := backup.Prune(t.Context(), p, "k8s", newest, 2); err != nil || len(gone) > 0 {
			t.Errorf("again: removed %+v, %v", gone, err)
		}
	})
}

// TestAbandonedDrafts removes what a killed run of the same cluster left, a day later, and no other's.
func TestAbandonedDrafts(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		stay := []string{
			".k8s-2-20250101T000000Z.slipway.partial",
			"." + backup.Name("k8s", time.Now().Add(-time.Hour)) + ".partial", // another run may be writing it
		}
		for _, name := range append(stay, ".k8s-20250101T000000Z.slipway.partial") {
			p.put(t, name)
		}
		if p.broke != nil { // an upload that was never completed
			if _, err := p.Begin(t.Context(), "k8s-20250102T000000Z.slipway"); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := save(t.Context(), p, backup.Seal{Unencrypted: true}, "k8s", 2, bytes.NewReader(snapshot(t, 512)))
		if err != nil {
			t.Fatal(err)
		}
		want := append(stay, stored.Name)
		slices.Sort(want)
		if names := p.names(t); !slices.Equal(names, want) {
			t.Errorf("there lie %q, want %q", names, want)
		}
	})
}

// TestPlacesThatAreNone wants mistakes found before any request.
func TestPlacesThatAreNone(t *testing.T) {
	for place, endpoint := range map[string]string{"s3://": "x.example", "s3:///a": "x.example", "s3://b": "",
		"s3://c": "ftp://x.example", "s3://d": "https://x.example/d"} {
		if _, err := backup.NewS3(place, backup.S3Options{S3Options: objectstore.S3Options{Endpoint: endpoint}}); err == nil {
			t.Errorf("%s at %q: taken", place, endpoint)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := save(t.Context(), backup.Folder(file), backup.Seal{Unencrypted: true}, "k8s", 2,
		bytes.NewReader(snapshot(t, 512))); err == nil {
		t.Error("a file was taken for a folder")
	}
}
