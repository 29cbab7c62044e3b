package main

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

	"github.com/slipway-k8s/slipway/internal/backup"
	"github.com/slipway-k8s/slipway/steps"
)

// errNobodyOpens has two lines: what is missing, and the ways to have it.
var errNobodyOpens = errors.New("nobody could open the backup: name public keys in BACKUP_RECIPIENTS (age-keygen -o key.txt makes a pair), or a passphrase in " +
	passphraseVariable + ", BACKUP_PASSPHRASE_FILE or BACKUP_PASSPHRASE_COMMAND\n" +
	"--unencrypted writes one that everybody can read, with every key of the cluster in it")

// backupSeal is who can open the backups that are made.
func backupSeal(ctx context.Context, c *console, cfg steps.Config, unencrypted bool) (backup.Seal, error) {
	recipients, err := backup.ParseRecipients(cfg.BackupRecipients)
	if err != nil {
		return backup.Seal{}, usagef("BACKUP_RECIPIENTS: %w", err)
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
		return backup.Seal{}, &usageError{errNobodyOpens}
	}
	return backup.PassphraseSeal(word)
}

// backupIdentities are the keys that open backups, all that are configured.
// None are no error: the backup may be unencrypted.
func backupIdentities(ctx context.Context, c *console, cfg steps.Config) ([]age.Identity, error) {
	var all []age.Identity
	if cfg.BackupIdentityFile != "" {
		data, err := os.ReadFile(atHome(cfg.BackupIdentityFile, c.environment["HOME"]))
		if err != nil {
			return nil, usagef("read the keys to backups: %w", err)
		}
		if all, err = backup.ParseIdentities(data); err != nil {
			return nil, usagef("%s: %w", cfg.BackupIdentityFile, err)
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
func passphrase(ctx context.Context, c *console, cfg steps.Config) (word string, err error) {
	switch {
	case c.environment[passphraseVariable] != "":
		word = c.environment[passphraseVariable]
	case cfg.BackupPassphraseFile != "":
		data, err := os.ReadFile(atHome(cfg.BackupPassphraseFile, c.environment["HOME"]))
		if err != nil {
			return "", usagef("read the passphrase of backups: %w", err)
		}
		word = string(data)
	case cfg.BackupPassphraseCommand != "":
		ctx, cancel := context.WithTimeout(ctx, tokenWithin)
		defer cancel()
		command := exec.CommandContext(ctx, "/bin/sh", "-c", cfg.BackupPassphraseCommand)
		var stderr strings.Builder
		command.Stdin, command.Stderr, command.WaitDelay = os.Stdin, &stderr, time.Second
		out, err := command.Output()
		if err != nil {
			return "", usagef("run BACKUP_PASSPHRASE_COMMAND: %w: %s", err, lastLine(stderr.String()))
		}
		word = string(out)
	default:
		return "", nil
	}
	word = strings.TrimRight(word, "\r\n")
	if word == "" || strings.Contains(word, "\n") {
		return "", usagef("the passphrase of backups is empty, or has several lines")
	}
	c.hide.learn(word)
	return word, nil
}

// backupStore is where backups go.
func backupStore(c *console, cfg steps.Config, place string) (backup.Store, error) {
	if !backup.IsS3(place) {
		place = atHome(place, c.environment["HOME"])
		if !filepath.IsAbs(place) {
			place = filepath.Join(c.workDir, place)
		}
		return backup.Folder(place), nil
	}
	o := backup.S3Options{
		Endpoint: cfg.BackupS3Endpoint, Region: cfg.BackupS3Region,
		AccessKey: c.environment[accessKeyVariable], SecretKey: c.environment[secretKeyVariable], Session: c.environment[sessionVariable],
	}
	if o.AccessKey == "" || o.SecretKey == "" {
		return nil, usagef("%s and %s are not both set: %s needs them", accessKeyVariable, secretKeyVariable, place)
	}
	c.hide.learn(o.SecretKey, o.Session)
	store, err := backup.NewS3(place, o)
	if err != nil {
		return nil, &usageError{err}
	}
	return store, nil
}

// backupFile finds the store and the name of one backup: a path, or
// s3://bucket/prefix/name.
func backupFile(c *console, cfg steps.Config, file string) (backup.Store, string, error) {
	dir, name := filepath.Dir(file), filepath.Base(file)
	if backup.IsS3(file) {
		name = path.Base(file)
		dir = strings.TrimSuffix(file, "/"+name)
	}
	store, err := backupStore(c, cfg, dir)
	return store, name, err
}
