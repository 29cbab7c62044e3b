package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/backup"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// errNobodyOpens has two lines: what is missing, and the ways to have it.
var errNobodyOpens = errors.New("nobody could open the backup: name public keys in BACKUP_RECIPIENTS (age-keygen -o key.txt makes a pair), or a passphrase in " +
	settings.PassphraseVariable + ", BACKUP_PASSPHRASE_FILE or BACKUP_PASSPHRASE_COMMAND\n" +
	"--unencrypted writes one that everybody can read, with every key of the cluster in it")

// backupSeal is who can open the backups that are made.
func backupSeal(ctx context.Context, c *console, cfg config.Config, unencrypted bool) (backup.Seal, error) {
	recipients, err := backup.ParseRecipients(cfg.BackupRecipients)
	if err != nil {
		return backup.Seal{}, usage.Errorf("BACKUP_RECIPIENTS: %w", err)
	}
	if len(recipients) > 0 && !unencrypted {
		return backup.Seal{Recipients: recipients}, nil
	}
	if unencrypted {
		return backup.Seal{Unencrypted: true}, nil
	}
	word, err := passphrase(ctx, c, cfg)
	if err != nil {
		return backup.Seal{}, err
	}
	if word == "" {
		return backup.Seal{}, &usage.Error{Err: errNobodyOpens}
	}
	return backup.PassphraseSeal(word)
}

// backupIdentities are the keys that open backups, all that are configured.
// None are no error: the backup may be unencrypted.
func backupIdentities(ctx context.Context, c *console, cfg config.Config) ([]age.Identity, error) {
	var all []age.Identity
	if cfg.BackupIdentityFile != "" {
		data, err := os.ReadFile(settings.AtHome(cfg.BackupIdentityFile, c.environment["HOME"]))
		if err != nil {
			return nil, usage.Errorf("read the keys to backups: %w", err)
		}
		if all, err = backup.ParseIdentities(data); err != nil {
			return nil, usage.Errorf("%s: %w", cfg.BackupIdentityFile, err)
		}
	}
	word, err := passphrase(ctx, c, cfg)
	if err != nil || word == "" {
		return all, err
	}
	identity, err := backup.PassphraseIdentity(word)
	if err != nil {
		return nil, err
	}
	return append(all, identity), nil
}

// passphrase reads the passphrase; empty: none is configured. Its errors never
// contain what was read.
func passphrase(ctx context.Context, c *console, cfg config.Config) (word string, err error) {
	switch {
	case c.environment[settings.PassphraseVariable] != "":
		word = c.environment[settings.PassphraseVariable]
	case cfg.BackupPassphraseFile != "":
		data, err := os.ReadFile(settings.AtHome(cfg.BackupPassphraseFile, c.environment["HOME"]))
		if err != nil {
			return "", usage.Errorf("read the passphrase of backups: %w", err)
		}
		word = string(data)
	case cfg.BackupPassphraseCommand != "":
		ctx, cancel := context.WithTimeout(ctx, settings.TokenWithin)
		defer cancel()
		command := exec.CommandContext(ctx, "/bin/sh", "-c", cfg.BackupPassphraseCommand)
		var stderr strings.Builder
		command.Stdin, command.Stderr, command.WaitDelay = os.Stdin, &stderr, time.Second
		out, err := command.Output()
		if err != nil {
			return "", usage.Errorf("run BACKUP_PASSPHRASE_COMMAND: %w: %s", err, text.LastLine(stderr.String()))
		}
		word = string(out)
	default:
		return "", nil
	}
	word = strings.TrimRight(word, "\r\n")
	if word == "" || strings.Contains(word, "\n") {
		return "", usage.Errorf("the passphrase of backups is empty, or has several lines")
	}
	c.hide.Learn(word)
	return word, nil
}

// backupStore is where backups go.
func backupStore(c *console, cfg config.Config, place string) (backup.Store, error) {
	if !backup.IsS3(place) {
		place = settings.AtHome(place, c.environment["HOME"])
		if !filepath.IsAbs(place) {
			place = filepath.Join(c.workDir, place)
		}
		return backup.Folder(place), nil
	}
	o := backup.S3Options{
		Endpoint: cfg.BackupS3Endpoint, Region: cfg.BackupS3Region,
		AccessKey: c.environment[settings.AccessKeyVariable], SecretKey: c.environment[settings.SecretKeyVariable], Session: c.environment[settings.SessionVariable],
	}
	if o.AccessKey == "" || o.SecretKey == "" {
		return nil, usage.Errorf("%s and %s are not both set: %s needs them", settings.AccessKeyVariable, settings.SecretKeyVariable, place)
	}
	c.hide.Learn(o.SecretKey, o.Session)
	store, err := backup.NewS3(place, o)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return store, nil
}

// backupFile finds the store and the name of one backup: a path, or
// s3://bucket/prefix/name.
func backupFile(c *console, cfg config.Config, file string) (backup.Store, string, error) {
	dir, name := filepath.Dir(file), filepath.Base(file)
	if backup.IsS3(file) {
		name = path.Base(file)
		dir = strings.TrimSuffix(file, "/"+name)
	}
	store, err := backupStore(c, cfg, dir)
	return store, name, err
}
