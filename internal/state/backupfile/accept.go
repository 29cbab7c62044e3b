package backupfile

import (
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Why a backup is refused that can be read.
var (
	ErrUnencrypted     = errors.New("it is a plain file")
	ErrUnauthenticated = errors.New("nothing shows who made it")
	ErrMisnamed        = errors.New("it is another backup than its name says")
)

// Accept is which backups a command takes.
type Accept struct {
	// Acts tells that a cluster, or the configuration of a run, is taken from the backup, and not only a look at it.
	Acts            bool
	Unencrypted     bool // also a plain file
	Unauthenticated bool // also one of which nothing shows who made it
}

// acceptFile judges a file before it is read. Whoever can write the place of backups can put a plain file there under
// the name of a sealed one.
func (f File) acceptFile(sealed backup.Sealing, opens bool) error {
	cfg := f.access.Config
	configured := opens || cfg.BackupRecipients != "" || cfg.BackupAuthenticationKeyFile != "" ||
		f.access.Environment[settings.AuthenticationKeyVariable] != ""
	switch {
	case sealed != backup.Plain || f.accept.Unencrypted:
		return nil
	case configured:
		return usage.Errorf("%s: %w, although backups are sealed here (a key or a passphrase is configured): everyone who can "+
			"write its place may have put it there. If it is meant, say so with --unencrypted", f.name, ErrUnencrypted)
	case f.accept.Acts:
		return usage.Errorf("%s: %w: everyone who can write its place may have put it there. If it is meant, say so with "+
			"--unencrypted; to open a sealed one, name the keys with --identity", f.name, ErrUnencrypted)
	}
	return nil
}

// acceptOrigin judges what was read. A plain file was judged before.
func (f File) acceptOrigin(c *backup.Contents) error {
	if !f.accept.Acts || f.accept.Unauthenticated || c.Origin.Sealed == backup.Plain || c.Origin.Authentic() {
		return nil
	}
	why := "it has no authentication"
	switch {
	case c.Header.Format < backup.Format:
		why = fmt.Sprintf("Slipway %s wrote no authentication", c.Header.Slipway)
	case c.Origin.Authenticated == backup.ByUnknownKey:
		why = fmt.Sprintf("it is authenticated by a key that is not at hand (%s; BACKUP_AUTHENTICATION_KEY_FILE names one)",
			c.Origin.Key)
	}
	return usage.Errorf("%s: it is %s, and %w: %s. Everyone who has the public keys and can write its place may have made it. "+
		"If you know that it is yours, say so with --unauthenticated", f.name, c.Origin, ErrUnauthenticated, why)
}

// sameName refuses a backup under the name of another: one of another cluster, or an older one in the place of a newer.
// A file may have a name of its own.
func sameName(name string, h backup.Header) error {
	cluster, at, ok := backup.ParseName(name)
	if !ok || name == backup.Name(h.Cluster, h.Taken) {
		return nil
	}
	return usage.Errorf("%s: %w: the name is of cluster %s at %s, and it holds cluster %s at %s", name, ErrMisnamed, cluster,
		at.Format(time.RFC3339), h.Cluster, h.Taken.UTC().Format(time.RFC3339))
}
