package operations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// givenIdentity is the key that opens the states: that of the environment or of a file; empty: there is none.
func (f *opened) givenIdentity() (string, error) {
	if text := f.caller.Environment[settings.StateIdentityVariable]; text != "" {
		remotestate.LearnIdentity(f.caller.Hide, text)
		return text, nil
	}
	if f.own.StateIdentityFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(f.onThisMachine(f.own.StateIdentityFile))
	if err != nil {
		return "", usage.Errorf("read the key to the states (STATE_IDENTITY_FILE): %w", err)
	}
	remotestate.LearnIdentity(f.caller.Hide, string(data))
	return string(data), nil
}

// identitySecret is the Secret with the operator's key, from which those to the states are made; nil: it is there.
// Another key than the one that is there is refused: it could not open what was written with that.
func (f *opened) identitySecret(ctx context.Context) (secret *corev1.Secret, identity string, err error) {
	given, err := f.givenIdentity()
	if err != nil {
		return nil, "", err
	}
	if given == "" && f.lab != nil {
		if given, err = f.rehearsedIdentity(); err != nil {
			return nil, "", err
		}
	}
	stored, exists, err := f.readIdentity(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case !exists && given == "":
		return nil, "", usage.Errorf("the states of the clusters are encrypted, and namespace %s has no key for them yet: "+
			"name a file with a secret key in STATE_IDENTITY_FILE, or put the key into STATE_IDENTITY in the environment\n"+
			"age-keygen -o key.txt creates one; keep a copy where the management cluster is not", f.Namespace)
	case !exists:
		return fleet.Secret(f.Namespace, fleet.IdentitySecret, fleet.IdentitySecretKey, []byte(given)), given, nil
	case given != "" && given != stored:
		return nil, "", usage.Errorf("Secret %s/%s has another key to the states than this command was given: states that "+
			"were written with it could not be opened any more. Leave STATE_IDENTITY and STATE_IDENTITY_FILE away to use the "+
			"one that is there", f.Namespace, fleet.IdentitySecret)
	}
	return nil, stored, nil
}

// storedIdentity is the key that opens the states: the one that is given, or that is in the management cluster; empty:
// there is none yet.
func (f *opened) storedIdentity(ctx context.Context) (string, error) {
	if given, err := f.givenIdentity(); err != nil || given != "" || f.management == nil {
		return given, err
	}
	stored, _, err := f.readIdentity(ctx)
	return stored, err
}

// readIdentity reads the operator's key from its Secret in the management cluster.
func (f *opened) readIdentity(ctx context.Context) (identity string, exists bool, err error) {
	secret := &corev1.Secret{}
	err = f.management.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: fleet.IdentitySecret}, secret)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look for the key to the states: %w", err)
	}
	identity = string(secret.Data[fleet.IdentitySecretKey])
	remotestate.LearnIdentity(f.caller.Hide, identity)
	return identity, true, nil
}

// rehearsedIdentity is a key for the states of a rehearsal, which no other machine has to open. Of two processes that
// make it at once one does, and both use that.
func (f *opened) rehearsedIdentity() (string, error) {
	path := filepath.Join(string(f.folder()), "state-identity.txt")
	if data, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		return string(data), err
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	if err := writeWhole(path, []byte(key.String()+"\n"), os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write the key to the states of a rehearsal: %w", err)
	}
	data, err := os.ReadFile(path)
	return string(data), err
}

// keySecrets are the Secrets with the keys to the states of clusters, each made from the operator's key: one opens the
// state of its cluster alone.
func (f *opened) keySecrets(identity string, clusters []string) (secrets []*corev1.Secret, err error) {
	for _, cluster := range clusters {
		all, err := keys.ParseClusters([]byte(identity), scopeOf(cluster))
		if err != nil {
			return nil, usage.Errorf("make the key to the state of cluster %s: %w", cluster, err)
		}
		key := all[0].Secret()
		f.caller.Hide.Learn(key)
		secrets = append(secrets, fleet.Secret(f.Namespace, fleet.KeyName(cluster), fleet.IdentitySecretKey, []byte(key)))
	}
	return secrets, nil
}

// scopeOf is the cluster as a Job of a fleet has its state, also in a rehearsal.
func scopeOf(cluster string) keys.Scope {
	return keys.Scope{Environment: statedir.EnvironmentHetzner, Cluster: cluster}
}

// readToken reads one of the fleet's tokens from where it is; that of a Secret is read from the management cluster.
func (f *opened) readToken(ctx context.Context, name string) (platform.Secret, error) {
	t := f.Tokens[name]
	var token platform.Secret
	var err error
	switch {
	case f.lab != nil:
		token = platform.NewSecret(f.labInfo.Token)
	case t.Secret != "":
		token, err = f.storedToken(ctx, t.Secret)
	default:
		token, err = f.tokenOutside(ctx, t)
	}
	if err != nil {
		return token, fmt.Errorf("token %s of the fleet: %w", name, err)
	}
	f.caller.Hide.Learn(token.Reveal())
	return token, nil
}

// tokenOutside reads a token that is not in the management cluster. A file is relative to the folder of the fleet's.
func (f *opened) tokenOutside(ctx context.Context, t fleet.Token) (platform.Secret, error) {
	switch {
	case t.Env != "" && f.caller.Environment[t.Env] == "":
		return platform.Secret{}, usage.Errorf("the environment variable %s is not set", t.Env)
	case t.Env != "":
		return settings.ParseToken(f.caller.Environment[t.Env], "the environment variable "+t.Env)
	case t.File != "":
		path := settings.InFolder(filepath.Dir(f.Path()), settings.AtHome(t.File, f.caller.Environment["HOME"]))
		data, err := os.ReadFile(path)
		if err != nil {
			return platform.Secret{}, usage.Errorf("read the Hetzner token: %w", err)
		}
		return settings.ParseToken(string(data), "the file "+path)
	}
	out, err := settings.OutputOf(ctx, t.Command)
	if err != nil {
		return platform.Secret{}, usage.Errorf("run the command for the Hetzner token: %w", err)
	}
	return settings.ParseToken(out, "the command")
}

func (f *opened) storedToken(ctx context.Context, name string) (platform.Secret, error) {
	secret := &corev1.Secret{}
	err := f.management.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, secret)
	if err == nil && len(secret.Data[fleet.TokenSecretKey]) == 0 {
		err = fmt.Errorf("it has no key %s", fleet.TokenSecretKey)
	}
	if err != nil {
		return platform.Secret{}, fmt.Errorf("Secret %s/%s: %w", f.Namespace, name, err)
	}
	return platform.NewSecret(string(secret.Data[fleet.TokenSecretKey])), nil
}

// secretsOf are the Secrets that the Jobs of clusters read and that this command writes: tokens, and the keys to the
// states; and the operator's key, which no Job of a cluster reads.
func (f *opened) secretsOf(ctx context.Context, all []cluster) (secrets []*corev1.Secret, err error) {
	own, identity, err := f.identitySecret(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	derived, err := f.keySecrets(identity, names)
	if err != nil {
		return nil, err
	}
	written := map[string]bool{}
	for _, c := range all {
		token, err := f.readToken(ctx, c.Token)
		if err != nil {
			return nil, err
		}
		if (f.Tokens[c.Token].Secret == "" || f.lab != nil) && !written[c.Token] {
			secret := fleet.Secret(f.Namespace, fleet.TokenSecretName(f.Name, c.Token), fleet.TokenSecretKey,
				[]byte(token.Reveal()))
			if err := f.refuseOtherToken(ctx, c.Token, token, secret); err != nil {
				return nil, err
			}
			secrets = append(secrets, secret)
			written[c.Token] = true
		}
	}
	if own != nil {
		secrets = append(secrets, own)
	}
	return append(secrets, derived...), nil
}

// refuseOtherToken refuses to write a token that may not write, and to replace a token by another one without
// consent: it may be of another project, and all clusters of the fleet that use it would get it.
func (f *opened) refuseOtherToken(ctx context.Context, name string, token platform.Secret,
	wanted *corev1.Secret) error {
	is := &corev1.Secret{}
	err := f.management.Get(ctx, client.ObjectKeyFromObject(wanted), is)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("look for token %s of the fleet: %w", name, err)
	}
	if !absent && bytes.Equal(is.Data[fleet.TokenSecretKey], wanted.Data[fleet.TokenSecretKey]) {
		return nil
	}
	if f.lab == nil { // the lab has but one, which may write
		tools := platform.Tools{Hetzner: session.HetznerClient(f.caller.Environment[settings.EndpointVariable], token, nil,
			f.caller.InspectionGovernor())}
		err := apply.CheckToken(ctx, tools, wanted.Namespace, wanted.Name)
		if errors.Is(err, hetzner.ErrReadOnly) || errors.Is(err, hetzner.ErrToken) {
			err = &usage.Error{Err: err}
		}
		if err != nil {
			return fmt.Errorf("token %s of the fleet: %w", name, err)
		}
	}
	if absent || f.asked.Yes {
		return nil
	}
	return usage.Errorf("token %s of the fleet is another one than in Secret %s/%s, which all of its clusters use: if "+
		"it is a new one of the same Hetzner project, agree with --yes", name, wanted.Namespace, wanted.Name)
}
