package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretIsHidden(t *testing.T) {
	s := NewSecret("planted")
	data, err := json.Marshal(map[string]any{"s": s, "tools": Tools{Token: s}.Token})
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %q %d %x", s, s, s, s, s, s, s) + fmt.Sprintf("%v %+v", struct{ S Secret }{s},
		&struct{ S Secret }{s}) + string(data)
	if strings.Contains(shown, "planted") || strings.Contains(shown, fmt.Sprintf("%x", "planted")) {
		t.Errorf("shown: %s", shown)
	}
	if s.Reveal() != "planted" {
		t.Error("lost")
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	f := FilesIn(filepath.Join(t.TempDir(), "a", "state"))
	if _, err := f.Read("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := f.Write("x", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(".x.new"), []byte("left by a killed run"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Write("x", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if data, err := f.Read("x"); err != nil || string(data) != "two" {
		t.Errorf("read %q, %v", data, err)
	}
	for path, want := range map[string]fs.FileMode{f.String(): 0o700, f.Path("x"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(f.String())
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
	if err := os.Chmod(f.Path("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Write("x", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.Path("x")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file that others could read stays so: %v", err)
	}
}
