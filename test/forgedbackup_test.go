package test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// refusesForged replaces a backup, as an attacker who can write its place and knows its public key: by a plain file and
// by a sealed one, each with the authorities of the attacker. Nothing but a look at them may come of it.
func refusesForged(t *testing.T, c *command, file, identity string) {
	t.Helper()
	before := serverWrites(t, c)
	secret := must(keys.ParseIdentities(must(os.ReadFile(identity))(t)))(t)
	archive := must(backup.Open(bytes.NewReader(must(os.ReadFile(file))(t)), secret...))(t)
	var snapshot bytes.Buffer
	contents := *must(archive.Read(&snapshot))(t)
	for i := range contents.Secrets {
		if s := &contents.Secrets[i]; s.GetName() == "k8s-talos" {
			s.Object["data"] = map[string]any{"bundle": "YXR0YWNrZXI="}
		}
	}
	forged := filepath.Join(t.TempDir(), filepath.Base(file))
	for _, tt := range []struct {
		seal     backup.Seal
		verified int // exit code of backup verify
		says     string
	}{
		{backup.Seal{Unencrypted: true}, 2, "it is a plain file"},
		{backup.Seal{Recipients: []age.Recipient{secret[0].(*age.X25519Identity).Recipient()}}, 0, "nothing shows who made it"},
	} {
		var data bytes.Buffer
		if _, err := backup.Write(&data, tt.seal, contents, bytes.NewReader(snapshot.Bytes())); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(forged, data.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, words := range [][]string{{"backup", "verify"}, {"restore"}, {"restore", "--diagnose"}, {"readopt"}} {
			want := 2
			if words[0] == "backup" {
				want = tt.verified
			}
			args := append(words, forged, "--identity", identity)
			if words[0] != "backup" {
				args = append(args, "--lab")
			}
			cmd := c.cmd(t.Context(), args...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), tt.says) {
				t.Errorf("%v of a forged backup (%s): exit %d\n%s", words, tt.says, code, out)
			}
		}
	}
	if after := serverWrites(t, c); len(after) != len(before) {
		t.Errorf("a forged backup led to %v", after[len(before):])
	}
	if _, err := os.Lstat(filepath.Join(c.state, "restore")); err == nil {
		t.Error("a refused restore has begun")
	}
}
