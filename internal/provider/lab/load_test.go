package lab

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func TestLabLoadNamesWhoHasTheAddress(t *testing.T) {
	address := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lab" {
			_, _ = w.Write([]byte(`{"dir":"/elsewhere/lab","pid":42}`))
		}
	}))
	err := CheckAddress(t.Context(), address.URL+"/v1")
	if err == nil || !strings.Contains(err.Error(), "the lab in /elsewhere/lab has (process 42)") ||
		!strings.Contains(err.Error(), "--state-dir /elsewhere") {
		t.Errorf("%v", err)
	}
	address.Close()
	if err := CheckAddress(t.Context(), address.URL+"/v1"); err != nil {
		t.Errorf("without a lab at the address: %v", err)
	}
}

// What was there goes, and only when what takes its place is whole.
func TestLoadState(t *testing.T) {
	from, parent := t.TempDir(), t.TempDir()
	state := statedir.Dir(filepath.Join(parent, "state"))
	writeFile(t, filepath.Join(from, SavedFile), "{}")
	writeFile(t, filepath.Join(from, "lab", "state.json"), "new")
	writeFile(t, state.Path("lab/state.json"), "old")
	writeFile(t, state.Path("lab/more"), "old")
	if _, err := LoadState(t.Context(), state, filepath.Join(from, "nothing")); err == nil {
		t.Error("nothing is loaded")
	}
	if got, err := os.ReadFile(state.Path("lab/state.json")); err != nil || string(got) != "old" {
		t.Errorf("after a failure there is %s, %v", got, err)
	}
	if _, err := LoadState(t.Context(), state, from); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(state.Path("lab/state.json"))
	if err != nil || !bytes.Equal(got, []byte("new")) || Exists(state.Path("lab/more")) || Exists(state.Path(SavedFile)) {
		t.Errorf("loaded: %s, %v", got, err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}
