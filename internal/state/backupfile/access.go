// Package backupfile opens backups and the places where they are stored, with the keys that the configuration names.
package backupfile

import (
	"context"
	"errors"
	"os"
	"strings"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// errNoRecipient has two lines: what is missing, and what to configure.
var errNoRecipient = errors.New("no key could open the backup: name public keys in BACKUP_RECIPIENTS " +
	"(age-keygen -o key.txt creates a pair), or a passphrase in " + settings.PassphraseVariable +
	", BACKUP_PASSPHRASE_FILE or BACKUP_PASSPHRASE_COMMAND\n" +
	"--unencrypted writes one that everyone who has the file can read, with every key of the cluster in it")

// NoKey tells whether an error of Access.Seal is that no key for backups is configured.
func NoKey(err error) bool { return errors.Is(err, errNoRecipient) }

// Access is what places and keys of backups are read with.
type Access struct {
	Config      config.Config
	Environment map[string]string
	WorkDir     string
	Hide        *redact.Redactor // learns the secrets that are read
}

// Seal says who can open the backups that are made.
func (a Access) Seal(ctx context.Context, unencrypted bool) (backup.Seal, error) {
	recipients, err := keys.ParseRecipients(a.Config.BackupRecipients)
	if err != nil {
		return backup.Seal{}, usage.Errorf("BACKUP_RECIPIENTS: %w", err)
	}
	switch {
	case unencrypted:
		return backup.Seal{Unencrypted: true}, nil
	case len(recipients) > 0:
		return backup.Seal{Recipients: recipients}, nil
	}
	word, err := a.passphrase(ctx)
	if err != nil {
		return backup.Seal{}, err
	}
	if word == "" {
		return backup.Seal{}, &usage.Error{Err: errNoRecipient}
	}
	return backup.PassphraseSeal(word)
}

// identities are the keys that open backups. No key is no error: the backup may be unencrypted.
func (a Access) identities(ctx context.Context) ([]age.Identity, error) {
	var all []age.Identity
	if a.Config.BackupIdentityFile != "" {
		data, err := a.identityFile()
		if err != nil {
			return nil, usage.Errorf("read the keys to backups: %w", err)
		}
		if all, err = keys.ParseIdentities(data); err != nil {
			return nil, usage.Errorf("%s: %w", a.Config.BackupIdentityFile, err)
		}
	}
	word, err := a.passphrase(ctx)
	if err != nil || word == "" {
		return all, err
	}
	identity, err := backup.PassphraseIdentity(word)
	if err != nil {
		return nil, err
	}
	return append(all, identity), nil
}

func (a Access) identityFile() ([]byte, error) {
	return os.ReadFile(settings.AtHome(a.Config.BackupIdentityFile, a.Environment["HOME"]))
}

// passphrase is empty where none is configured. Its errors do not contain what was read.
func (a Access) passphrase(ctx context.Context) (word string, err error) {
	switch {
	case a.Environment[settings.PassphraseVariable] != "":
		word = a.Environment[settings.PassphraseVariable]
	case a.Config.BackupPassphraseFile != "":
		data, err := os.ReadFile(settings.AtHome(a.Config.BackupPassphraseFile, a.Environment["HOME"]))
		if err != nil {
			return "", usage.Errorf("read the passphrase of backups: %w", err)
		}
		word = string(data)
	case a.Config.BackupPassphraseCommand != "":
		out, err := settings.OutputOf(ctx, a.Config.BackupPassphraseCommand)
		if err != nil {
			return "", usage.Errorf("run BACKUP_PASSPHRASE_COMMAND: %w", err)
		}
		word = out
	default:
		return "", nil
	}
	word = strings.TrimRight(word, "\r\n")
	if word == "" || strings.Contains(word, "\n") {
		return "", usage.Errorf("the passphrase of backups is empty, or has several lines")
	}
	a.Hide.Learn(word)
	return word, nil
}

// Store is a place where backups are stored.
func (a Access) Store(place string) (backup.Store, error) {
	if !backup.IsS3(place) {
		return backup.Folder(settings.InFolder(a.WorkDir, settings.AtHome(place, a.Environment["HOME"]))), nil
	}
	o := backup.S3Options{S3Options: objectstore.S3Options{
		Endpoint: a.Config.BackupS3Endpoint, Region: a.Config.BackupS3Region,
		AccessKey: a.Environment[settings.AccessKeyVariable], SecretKey: a.Environment[settings.SecretKeyVariable],
		Session: a.Environment[settings.SessionVariable],
	}}
	if o.AccessKey == "" || o.SecretKey == "" {
		return nil, usage.Errorf("%s and %s are not both set: %s needs them",
			settings.AccessKeyVariable, settings.SecretKeyVariable, place)
	}
	a.Hide.Learn(o.SecretKey, o.Session)
	store, err := backup.NewS3(place, o)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return store, nil
}
