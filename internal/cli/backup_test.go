package cli

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// TestBackupMistakes finds every mistake before anything is asked or written,
// and never repeats a secret.
func TestBackupMistakes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	public := "BACKUP_RECIPIENTS=" + key.Recipient().String()
	for _, tt := range []struct {
		environment string
		args        []string
		want        string
	}{
		{"", []string{"backup"}, "no key could open the backup"},
		{"", []string{"backup", "BACKUP_RECIPIENTS=" + key.String()}, "it is a secret key"},
		{"", []string{"backup", "BACKUP_PASSPHRASE_FILE=missing"}, "read the passphrase"},
		{"", []string{"backup", "BACKUP_PASSPHRASE_COMMAND=exit 3"}, "BACKUP_PASSPHRASE_COMMAND: exit status 3"},
		{"", []string{"backup", "BACKUP_PASSPHRASE_COMMAND=true"}, "is empty"},
		{"", []string{"backup", public, "BACKUP_PASSPHRASE_FILE=x"}, "keep one of"},
		{"", []string{"backup", public, "--to", "s3://bucket"}, "backupS3Endpoint"},
		{"", []string{"backup", public, "--to", "ftp://bucket"}, "neither a folder nor an S3 store"},
		{"", []string{"backup", public, "--to", "s3://bucket", "BACKUP_S3_ENDPOINT=x.example"},
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		{"", []string{"backup", public, "--keep", "-1"}, "negative"},
		{"", []string{"backup", public, "--every", "5s"}, "too often"},
		{"", []string{"backup", "--identity", "x", public}, "--identity goes with"},
		{"", []string{"backup", "BACKUP_PASSPHRASE=x"}, "there is no variable BACKUP_PASSPHRASE"},
		{"", []string{"backup", "verify"}, "needs FILE"},
		{"", []string{"backup", "verify", "file", "--identity", "missing"}, "read the keys to backups"},
		{"", []string{"backup", "cronjob", public}, "a CronJob can only reach a store"},
	} {
		r := execute(t, t.Context(), dir, tt.environment, tt.args...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, tt.want) || strings.Contains(r.stderr, key.String()) {
			t.Errorf("%q: exit %d: %s", tt.args, r.code, r.stderr)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("they left %v, %v", entries, err)
	}
}

// TestBackupOfNothing has a token and a key, and no cluster.
func TestBackupOfNothing(t *testing.T) {
	s := hetznertest.NewEmpty()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, "HCLOUD_ENDPOINT="+s.URL+" HCLOUD_TOKEN="+hetznertest.Token+
		" BACKUP_PASSPHRASE=correct-horse", "backup")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "there is no cluster k8s to back up") {
		t.Errorf("%+v", r)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

// savedBackup writes a backup with a snapshot that is no database.
func savedBackup(t *testing.T, dir string, seal backup.Seal, at time.Time) string {
	t.Helper()
	data := make([]byte, 8192, 8192+sha256.Size)
	_, _ = rand.Read(data)
	sum := sha256.Sum256(data)
	c := backup.Contents{Header: backup.Header{Cluster: "k8s", UID: "7a3b", Taken: at}}
	stored, err := backup.Save(t.Context(), backup.Folder(dir), seal, c, bytes.NewReader(append(data, sum[:]...)))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, stored.Name)
}

// TestBackupVerifyRefuses says what is wrong with a file, and with the keys.
func TestBackupVerifyRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	if err := os.Mkdir("tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	seal, err := backup.PassphraseSeal("correct-horse")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	file := savedBackup(t, dir, seal, at)
	cut := filepath.Join(dir, "cut.slipway")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(cut, data[:len(data)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ environment, file, want string }{
		{"", file, "no key or passphrase"},
		{"BACKUP_PASSPHRASE=wrong-horse", file, "cannot be opened"},
		{"BACKUP_PASSPHRASE=correct-horse", cut, "the backup is damaged"},
		{"BACKUP_PASSPHRASE=correct-horse", file, "restore the etcd snapshot"}, // its sum is right, but it is none
		{"BACKUP_PASSPHRASE=correct-horse", filepath.Join(dir, "missing"), "no such file"},
	} {
		r := execute(t, t.Context(), dir, tt.environment, "backup", "verify", tt.file)
		if r.code != ExitFailed || !strings.Contains(r.stderr, tt.want) || strings.Contains(r.stderr+r.stdout, "-horse") {
			t.Errorf("%s: %+v", tt.want, r)
		}
	}
	if entries, err := os.ReadDir("tmp"); err != nil || len(entries) > 0 {
		t.Errorf("scratch folders are left: %v, %v", entries, err)
	}
}

// TestBackupList lists backups, oldest first, and nothing else.
func TestBackupList(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if r := execute(t, t.Context(), dir, "", "backup", "list"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "there is no backup in "+filepath.Join(dir, "backups")) {
		t.Errorf("nothing there: %+v", r)
	}
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	savedBackup(t, filepath.Join(dir, "here"), backup.Seal{Unencrypted: true}, at.Add(time.Hour))
	savedBackup(t, filepath.Join(dir, "here"), backup.Seal{Unencrypted: true}, at)
	r := execute(t, t.Context(), dir, "", "backup", "list", "--to", "here", "--output", "json")
	var list struct{ Backups []backup.Stored }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Backups) != 2 ||
		!list.Backups[0].Taken.Equal(at) || list.Backups[0].Cluster != "k8s" {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestBackupCronJob wants YAML that Kubernetes reads, with the store and the key
// in it, and no secret asked for.
func TestBackupCronJob(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	r := execute(t, t.Context(), dir, "", "backup", "cronjob", "--to", "s3://bucket/of/k8s", "--every", "30m",
		"BACKUP_RECIPIENTS="+key.Recipient().String(), "BACKUP_S3_ENDPOINT=nbg1.your-objectstorage.com",
		"BACKUP_S3_REGION=nbg1")
	if r.code != ExitDone {
		t.Fatalf("%+v", r)
	}
	docs, err := kube.Documents([]byte(r.stdout))
	if err != nil || len(docs) != 2 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	var job batchv1.CronJob
	if err := yaml.UnmarshalStrict(docs[1], &job); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{}
	for _, e := range job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Env {
		environment[e.Name] = e.Value
	}
	if job.Spec.Schedule != "*/30 * * * *" || environment["BUCKET"] != "bucket" ||
		environment["S3_PREFIX"] != "of/k8s/etcd/k8s" ||
		environment["CUSTOM_S3_ENDPOINT"] != "https://nbg1.your-objectstorage.com" ||
		environment["AGE_X25519_PUBLIC_KEY"] != key.Recipient().String() {
		t.Errorf("schedule %q, environment %v", job.Spec.Schedule, environment)
	}
	account, err := kube.Parse(docs[0])
	if err != nil || account.GetKind() != "ServiceAccount" ||
		job.Spec.JobTemplate.Spec.Template.Spec.Volumes[1].Secret.SecretName != account.GetName() {
		t.Errorf("the account is %v, %v", account, err)
	}
	for every, want := range map[time.Duration]string{0: "0 */6 * * *", 24 * time.Hour: "0 0 * * *",
		time.Hour: "0 */1 * * *", 8 * time.Hour: "0 */8 * * *"} {
		if got, err := cronSchedule(every); err != nil || got != want {
			t.Errorf("%s: %q, %v", every, got, err)
		}
	}
	for _, every := range []time.Duration{7 * time.Minute, 5 * time.Hour, 90 * time.Second, 48 * time.Hour, -time.Hour} {
		if got, err := cronSchedule(every); err == nil {
			t.Errorf("%s is taken as %q", every, got)
		}
	}
}

// TestOfferBackup does not ask in a pipe, and says how.
func TestOfferBackup(t *testing.T) {
	dir := t.TempDir()
	files := platform.FilesIn(dir)
	var shown bytes.Buffer
	c := &console{stdout: &shown, stderr: &shown, size: func() (int, int) { return 0, 0 }, hide: &redact.Redactor{},
		environment: map[string]string{}}
	one := &call{console: c, arguments: arguments{Output: "text"}}
	s := &session.Session{Hub: &session.Hub{Hide: c.hide, Displays: []session.Display{&session.PlainDisplay{Out: &shown}}},
		Tools: platform.Tools{Files: files}}
	s.Caller, s.Cfg.Config = one.caller(), config.Defaults()
	if err := offerBackup(t.Context(), one, s, "danger"); err != nil || shown.Len() > 0 {
		t.Errorf("without a cluster: %v, %q", err, shown.String())
	}
	if err := files.Write("kubeconfig", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := offerBackup(t.Context(), one, s, "danger"); err != nil ||
		!strings.Contains(shown.String(), "docs/backup.md") {
		t.Errorf("in a pipe: %v, %q", err, shown.String())
	}
	// On a terminal a person is asked, and may say no.
	shown.Reset()
	c.size, c.stdin, c.environment = func() (int, int) { return 80, 24 }, strings.NewReader("no\n"),
		map[string]string{settings.PassphraseVariable: "correct-horse"}
	s.Caller = one.caller()
	if err := offerBackup(t.Context(), one, s, "danger"); err != nil ||
		!strings.Contains(shown.String(), "Back cluster k8s up to backups first?") {
		t.Errorf("no: %v, %q", err, shown.String())
	}
	// A yes is meant: where the backup fails, nothing dangerous follows.
	c.stdin = strings.NewReader("yes\n")
	t.Chdir(dir)
	c.workDir = dir
	s.Caller = one.caller()
	if err := offerBackup(t.Context(), one, s, "danger"); err == nil || !errors.Is(err, settings.ErrNoToken) {
		t.Errorf("yes, without a token: %v", err)
	}
	// The backup is made with the files of the command's --dir.
	c.stdin = strings.NewReader("yes\n")
	s.Dir = filepath.Join(dir, "elsewhere")
	if err := offerBackup(t.Context(), one, s, "danger"); err == nil || !strings.Contains(err.Error(), s.Dir) {
		t.Errorf("yes, with a folder of files that is not there: %v", err)
	}
}
