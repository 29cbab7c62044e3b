//go:build unix

package statedir

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// A folder, or a file in it, that others can write is refused before anything in it is read or changed.
func TestWritableByOthers(t *testing.T) {
	of := Owner{Cluster: "k8s"}
	for name, tt := range map[string]struct {
		path    string // in the folder
		mode    fs.FileMode
		refused bool
	}{
		"a folder of every user":   {".", 0o777, true},
		"a folder with sticky bit": {".", 0o777 | fs.ModeSticky, true},
		"a kubeconfig":             {"kubeconfig", 0o666, true},
		"the journal":              {JournalFile, 0o602, true},
		"the folder of runs":       {RunsFolder, 0o777, true},
		"one that others can read": {".", 0o755, false},
		"a file to read":           {"kubeconfig", 0o644, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Dir(t.TempDir())
			if err := s.Claim(t.Context(), of, EnvironmentHetzner, quiet); err != nil {
				t.Fatal(err)
			}
			record(t, s, "apply")
			writeFile(t, s.Path("kubeconfig"), "a kubeconfig")
			writeFile(t, s.Path(RunsFolder+"/one/log"), "what it said")
			if err := os.Chmod(s.Path(tt.path), tt.mode); err != nil {
				t.Fatal(err)
			}
			err := s.CheckOwner(t.Context(), of)
			var bad *usage.Error
			if refused := errors.As(err, &bad); refused != tt.refused || err != nil && !refused {
				t.Fatalf("looking: %v", err)
			}
			if tt.refused && !strings.Contains(err.Error(), "chmod -R go-w "+s.Path(tt.path)) {
				t.Errorf("it does not say what to do: %v", err)
			}
			if err := s.Claim(t.Context(), of, EnvironmentHetzner, quiet); errors.As(err, &bad) != tt.refused {
				t.Errorf("a run: %v", err)
			}
			if info, err := os.Stat(s.Path(tt.path)); err != nil || info.Mode().Perm() != tt.mode.Perm() {
				t.Errorf("its mode was changed: %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestWriters(t *testing.T) {
	for name, tt := range map[string]struct {
		mode               fs.FileMode
		owner, group, user uint32
		want               string
	}{
		"one's own":                       {0o700, 1000, 1000, 1000, ""},
		"the group of this user alone":    {0o770, 1000, 1000, 1000, ""},
		"another group":                   {0o770, 1000, 100, 1000, "the group 100"},
		"another user's":                  {0o700, 1001, 1001, 1000, "its owner, the user 1001"},
		"root's":                          {0o755, 0, 0, 1000, ""},
		"another user's, for root":        {0o755, 1000, 1000, 0, ""},
		"another user's group, for root":  {0o775, 1000, 100, 0, "the group 100"},
		"every user, though it is root's": {0o777, 0, 0, 1000, "every user"},
	} {
		if got := writers(tt.mode, tt.owner, tt.group, tt.user); got != tt.want &&
			(tt.want == "" || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
