package backupfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Authenticator is the key that authenticates the backups of a cluster that are made: the one that is given for that,
// or that is derived from the secret key that opens them. It is nil where neither is on this machine.
func (a Access) Authenticator(scope keys.Scope) (*keys.Authenticator, error) {
	texts, from, err := a.authenticationKeys()
	if err != nil {
		return nil, err
	}
	if len(texts) > 0 {
		key, err := keys.ParseAuthenticator(texts[0], scope, keys.Backup)
		if err != nil {
			return nil, usage.Errorf("%s: %w", from, err)
		}
		return &key, nil
	}
	all, err := a.derived(scope)
	if errors.Is(err, fs.ErrNotExist) { // a configuration may be shared with machines that hold no secret key
		return nil, nil
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// Authenticate adds the key that authenticates the backups of a cluster to a seal, where they need one: a passphrase
// shows who made them. Where there is no key it returns a note that says what that means and what to do.
func (a Access) Authenticate(seal *backup.Seal, scope keys.Scope) (note string, err error) {
	if seal.ByPassphrase() {
		return "", nil
	}
	if seal.Authenticator, err = a.Authenticator(scope); err != nil || seal.Authenticator != nil {
		return "", err
	}
	how := "sealed but not authenticated: everyone who has the public key and can write its place can replace it"
	if seal.Unencrypted {
		how = "neither sealed nor authenticated: everyone who can write its place can replace it"
	}
	return fmt.Sprintf("the backup is %s. `backup key FILE --identity …`, where the secret key is, writes the key that "+
		"authenticates backups and opens none: set BACKUP_AUTHENTICATION_KEY_FILE (docs/backup.md)", how), nil
}

// Derive derives the key that authenticates the backups of a cluster from the secret key that opens them.
func (a Access) Derive(scope keys.Scope) (keys.Authenticator, error) {
	all, err := a.derived(scope)
	if err != nil {
		return keys.Authenticator{}, err
	}
	if len(all) == 0 {
		return keys.Authenticator{}, usage.Errorf("the key is derived from the secret key that opens the backups: name its file " +
			"with --identity or BACKUP_IDENTITY_FILE")
	}
	a.Hide.Learn(all[0].Secret())
	return all[0], nil
}

// authenticators are the keys that may have authenticated a backup of a cluster.
func (a Access) authenticators(scope keys.Scope) ([]keys.Authenticator, error) {
	all, err := a.derived(scope)
	if err != nil {
		return nil, err
	}
	texts, from, err := a.authenticationKeys()
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		key, err := keys.ParseAuthenticator(text, scope, keys.Backup)
		if errors.Is(err, keys.ErrOtherCluster) {
			continue // the file is of another cluster than the configuration, as in a rehearsal: it shows nothing
		}
		if err != nil {
			return nil, usage.Errorf("%s: %w", from, err)
		}
		all = append(all, key)
	}
	return all, nil
}

// derived are the keys by the identity file, in its order; none where none is configured.
func (a Access) derived(scope keys.Scope) (all []keys.Authenticator, err error) {
	if a.Config.BackupIdentityFile == "" {
		return nil, nil
	}
	data, err := a.identityFile()
	if err != nil {
		return nil, usage.Errorf("read the keys to backups: %w", err)
	}
	clusters, err := keys.ParseClusters(data, scope)
	if err != nil {
		return nil, usage.Errorf("%s: %w", a.Config.BackupIdentityFile, err)
	}
	for _, c := range clusters {
		key, err := c.Authenticator(keys.Backup)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// authenticationKeys are the texts of the keys that are given, the one that authenticates what is written first, and
// where they come from.
func (a Access) authenticationKeys() (texts []string, from string, err error) {
	text, from := a.Environment[settings.AuthenticationKeyVariable], settings.AuthenticationKeyVariable
	if file := a.Config.BackupAuthenticationKeyFile; text == "" && file != "" {
		data, err := os.ReadFile(settings.AtHome(file, a.Environment["HOME"]))
		if err != nil {
			return nil, file, usage.Errorf("read the key that authenticates backups: %w", err)
		}
		text, from = string(data), fmt.Sprintf("%s (BACKUP_AUTHENTICATION_KEY_FILE)", file)
	}
	texts = strings.Fields(text)
	a.Hide.Learn(texts...)
	return texts, from, nil
}
