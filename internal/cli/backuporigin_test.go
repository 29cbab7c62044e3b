package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// operatorsKey is a secret key in a file, and what is made with it.
type operatorsKey struct {
	*age.X25519Identity
	file string
}

func newKey(t *testing.T, dir string) operatorsKey {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, key.Recipient().String()[:12]+".key")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return operatorsKey{key, file}
}

// seal seals for the key, and authenticates as the cluster of a scope; none: not.
func (k operatorsKey) seal(t *testing.T, scope keys.Scope) backup.Seal {
	t.Helper()
	seal := backup.Seal{Recipients: []age.Recipient{k.Recipient()}}
	if scope == (keys.Scope{}) {
		return seal
	}
	all, err := keys.ParseClusters([]byte(k.String()), scope)
	if err != nil {
		t.Fatal(err)
	}
	by, err := all[0].Authenticator(keys.Backup)
	if err != nil {
		t.Fatal(err)
	}
	seal.Authenticator = &by
	return seal
}

// TestWhatABackupIsIsSaidAndJudged has every kind of file that an attacker who can write the place of backups, and has
// the public key, can put there, and those of the operator.
func TestWhatABackupIsIsSaidAndJudged(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key, other := newKey(t, dir), newKey(t, dir)
	of := func(environment, cluster string) keys.Scope {
		return keys.Scope{Environment: environment, Cluster: cluster}
	}
	header := func(environment, cluster string) backup.Header {
		return backup.Header{Cluster: cluster, Environment: environment, UID: "uid",
			Taken: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	}
	word, err := backup.PassphraseSeal("correct-horse")
	if err != nil {
		t.Fatal(err)
	}
	const named = "k8s-20260102T150405Z.slipway"
	const taken = "restore the etcd snapshot" // it is accepted, and fails later: there is no etcd in these
	identity := "BACKUP_IDENTITY_FILE=" + key.file
	for name, tt := range map[string]struct {
		file        string
		seal        backup.Seal
		header      backup.Header
		environment string
		flags       []string
		acts, looks string // what restore and backup verify say
	}{
		"plain under the name of a sealed one": {named, backup.Seal{Unencrypted: true}, header("hetzner", "k8s"), identity, nil,
			"it is a plain file", "it is a plain file"},
		"plain, where only recipients are configured": {named, backup.Seal{Unencrypted: true}, header("hetzner", "k8s"),
			"BACKUP_RECIPIENTS=" + key.Recipient().String(), nil, "it is a plain file", "it is a plain file"},
		"plain, where a passphrase is configured": {named, backup.Seal{Unencrypted: true}, header("hetzner", "k8s"),
			"BACKUP_PASSPHRASE=correct-horse", nil, "it is a plain file", "it is a plain file"},
		"plain, and meant": {named, backup.Seal{Unencrypted: true}, header("hetzner", "k8s"), identity,
			[]string{"--unencrypted"}, taken, taken},
		"plain, with nothing configured": {named, backup.Seal{Unencrypted: true}, header("hetzner", "k8s"), "", nil,
			"it is a plain file", taken},
		"sealed with the public key": {named, key.seal(t, keys.Scope{}), header("hetzner", "k8s"), identity, nil,
			"nothing shows who made it", taken},
		"sealed with the public key, and authenticated by the attacker": {named,
			backup.Seal{Recipients: []age.Recipient{key.Recipient()}, Authenticator: other.seal(t, of("hetzner", "k8s")).Authenticator},
			header("hetzner", "k8s"), identity, nil, "a key that is not at hand", taken},
		"authenticated for another cluster": {named, key.seal(t, of("hetzner", "shop")), header("hetzner", "k8s"), identity, nil,
			"a key that is not at hand", taken},
		"of another cluster, under the name of this one": {named, key.seal(t, of("hetzner", "shop")), header("hetzner", "shop"),
			identity, nil, "another backup than its name says", "another backup than its name says"},
		"older than its name says": {"k8s-20260202T150405Z.slipway", key.seal(t, of("hetzner", "k8s")), header("hetzner", "k8s"),
			identity, nil, "another backup than its name says", "another backup than its name says"},
		"authentic":         {named, key.seal(t, of("hetzner", "k8s")), header("hetzner", "k8s"), identity, nil, taken, taken},
		"by the passphrase": {named, word, header("hetzner", "k8s"), "BACKUP_PASSPHRASE=correct-horse", nil, taken, taken},
	} {
		t.Run(name, func(t *testing.T) {
			writeBackup(t, tt.file, tt.seal, tt.header)
			for _, target := range []string{"restore", "readopt"} {
				r := execute(t, t.Context(), dir, tt.environment, append([]string{target, tt.file}, tt.flags...)...)
				want := tt.acts
				if target == "readopt" && want == taken {
					want = "it lacks" // it does not look at etcd
				}
				if r.code != ExitUsage || !strings.Contains(r.stderr, want) {
					t.Errorf("%s: exit %d, %s", target, r.code, r.stderr)
				}
			}
			r := execute(t, t.Context(), dir, tt.environment, append([]string{"backup", "verify", tt.file}, tt.flags...)...)
			if r.code == ExitDone || !strings.Contains(r.stderr, tt.looks) {
				t.Errorf("backup verify: exit %d, %s", r.code, r.stderr)
			}
		})
	}
	if _, err := os.Lstat(statedir.StateFolderIn); err == nil {
		t.Error("a refused restore made a state folder")
	}
}

// TestABackupOfTheLabIsNotRestoredToARealCluster refuses what is authentic, and of another environment.
func TestABackupOfTheLabIsNotRestoredToARealCluster(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key := newKey(t, dir)
	writeBackup(t, "file", key.seal(t, keys.Scope{Environment: "lab", Cluster: "k8s"}),
		backup.Header{Cluster: "k8s", Environment: "lab", UID: "uid", Taken: time.Now()})
	r := execute(t, t.Context(), dir, "BACKUP_IDENTITY_FILE="+key.file, "readopt", "file")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "a cluster in the lab") ||
		!strings.Contains(r.stderr, "authenticated by the key of cluster lab/k8s") {
		t.Errorf("%+v", r)
	}
}

// TestBackupKey writes a key that authenticates and opens nothing, into a new file of its owner alone, and shows it
// nowhere.
func TestBackupKey(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key := newKey(t, dir)
	r := execute(t, t.Context(), dir, "", "backup", "key", "made", "--identity", key.file)
	data, err := os.ReadFile("made")
	if r.code != ExitDone || err != nil {
		t.Fatalf("%v, %+v", err, r)
	}
	by, err := keys.ParseAuthenticator(string(data), keys.Scope{Environment: "hetzner", Cluster: "k8s"}, keys.Backup)
	if err != nil || by.ID() != key.seal(t, keys.Scope{Environment: "hetzner", Cluster: "k8s"}).Authenticator.ID() {
		t.Errorf("%v, %v", by, err)
	}
	if info, err := os.Stat("made"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if strings.Contains(r.stdout+r.stderr, strings.TrimSpace(string(data))) || !strings.Contains(r.stdout, by.ID()) {
		t.Errorf("printed: %+v", r)
	}
	for _, args := range [][]string{{"made", "--identity", key.file}, {"other"}} {
		if r := execute(t, t.Context(), dir, "", append([]string{"backup", "key"}, args...)...); r.code != ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if again, err := os.ReadFile("made"); err != nil || string(again) != string(data) {
		t.Errorf("the file was changed, %v", err)
	}
	// The key of another cluster does not authenticate, and is not taken for none.
	r = execute(t, t.Context(), dir, "HCLOUD_TOKEN=x", "backup", "BACKUP_AUTHENTICATION_KEY_FILE=made", "CLUSTER_NAME=shop",
		"BACKUP_RECIPIENTS="+key.Recipient().String())
	if r.code != ExitUsage || !strings.Contains(r.stderr, keys.ErrOtherCluster.Error()) {
		t.Errorf("the key of k8s for shop: %+v", r)
	}
}

// TestABackupThatIsNotAuthenticatedSaysSo notes it before the backup begins, also to a program.
func TestABackupThatIsNotAuthenticatedSaysSo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key := newKey(t, dir)
	for args, want := range map[string]bool{
		"BACKUP_RECIPIENTS=" + key.Recipient().String():                                       true,
		"BACKUP_RECIPIENTS=" + key.Recipient().String() + " BACKUP_IDENTITY_FILE=missing":     true,
		"BACKUP_RECIPIENTS=" + key.Recipient().String() + " BACKUP_IDENTITY_FILE=" + key.file: false,
		"BACKUP_PASSPHRASE=correct-horse":                                                     false,
	} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1 "+args, "backup", "--output", "json")
		noted := false
		for line := range strings.Lines(r.stdout) {
			noted = noted || json.Valid([]byte(line)) && strings.Contains(line, "not authenticated")
		}
		if noted != want {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
