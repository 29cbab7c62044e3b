package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// fleetCluster is a cluster with its configuration.
type fleetCluster struct {
	fleet.Cluster
	cfg     settings.Configuration
	decided []settings.Assignment // over what the file says
}

// checkedFleet is the fleet of the arguments, with the clusters that the flags select. Nothing was asked of anything.
func checkedFleet(ctx context.Context, c *console, a arguments, o fleetOptions) (*openedFleet, []fleetCluster, error) {
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return nil, nil, err
	}
	selected, err := f.selected(o.Clusters)
	if err != nil {
		return nil, nil, err
	}
	clusters, err := f.check(ctx, selected)
	return f, clusters, err
}

// check reads the configurations of all clusters, with the files that they are made from. It makes no request,
// and its error has what is wrong with each.
func (f *openedFleet) check(ctx context.Context, clusters []fleet.Cluster) (all []fleetCluster, err error) {
	var problems []error
	for _, c := range clusters {
		one := fleetCluster{Cluster: c, decided: f.decided(c)}
		if one.cfg, err = f.Configuration(c, one.decided...); err == nil {
			one.cfg.Overrides = f.overrides
			one.cfg, err = session.WithLiterals(one.cfg)
		}
		if err == nil {
			err = checkFleetFiles(ctx, one)
		}
		if notInLab := one.cfg.NotInLab(f.Path(), nil); err == nil && f.options.Lab && notInLab != nil {
			err = fmt.Errorf("cluster %s: %w", c.Name, notInLab)
		}
		if passwords := one.cfg.Passwords(); err == nil && strings.Join(passwords, "") != "" {
			f.console.hide.Learn(passwords...)
			err = fmt.Errorf("cluster %s: an address in its configuration has a password, and the configurations of a fleet are in "+
				"ConfigMaps, which must not hold secrets: remove the password", c.Name)
		}
		if err != nil {
			problems = append(problems, err)
		}
		all = append(all, one)
	}
	if len(problems) == 0 {
		problems = f.refuseNamespaces(all)
	}
	if len(problems) == 0 && !f.SkipDoctor && !f.options.Lab {
		problems = overlaps(all)
	}
	if len(problems) > 0 {
		return nil, &usage.Error{Err: errors.Join(problems...)}
	}
	return all, nil
}

// overlaps finds clusters with one token whose networks overlap: the doctor of the second one's run would refuse it.
func overlaps(all []fleetCluster) (problems []error) {
	for i, b := range all {
		for _, a := range all[:i] {
			was, errA := netip.ParsePrefix(a.cfg.NetworkCIDR)
			is, errB := netip.ParsePrefix(b.cfg.NetworkCIDR)
			if a.Token != b.Token || errA != nil || errB != nil || !was.Overlaps(is) {
				continue
			}
			problems = append(problems, fmt.Errorf("cluster %s: networkCidr %s overlaps that of cluster %s (%s) in the same Hetzner "+
				"project: give each cluster a range of its own, with controlPlaneCidr, podCidr and serviceCidr in it, or write "+
				"skipDoctor: true, if nothing will ever be in both", b.Name, is, a.Name, was))
			break
		}
	}
	return problems
}

func checkFleetFiles(ctx context.Context, c fleetCluster) error {
	b, err := planning.New(c.cfg.Config, session.OfflineTools(c.cfg))
	if err == nil {
		err = checks.Values(b.Cfg, b.Sources)
	}
	if err == nil {
		err = session.CheckFiles(ctx, b, b.Plan.All)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return nil
}

// enterLab lets a rehearsal decide what it does of each cluster.
func (f *openedFleet) enterLab(ctx context.Context, all []fleetCluster) error {
	for i := range all {
		if f.lab == nil {
			return nil
		}
		c := &all[i]
		info, err := f.lab.Client.Admit(ctx, c.Name)
		if err != nil {
			return err
		}
		cfg, _, err := lab.Configure(c.cfg, info)
		if err != nil {
			return err
		}
		for field, place := range cfg.Places {
			if place == settings.LabPlace {
				v := settings.Field(field)
				c.decided = append(c.decided, settings.Assign(v.Name, v.Get(cfg.Config)))
			}
		}
		// Everything in the lab sees this machine, and the management cluster, by the loopback.
		if cfg.FirewallAllow == "" && !f.Pivot || strings.Contains(cfg.FirewallAllow, "auto") {
			cfg.FirewallAllow = "127.0.0.1/32"
			c.decided = append(c.decided, settings.Assign("FIREWALL_ALLOW", cfg.FirewallAllow))
		}
		c.cfg = cfg
	}
	return nil
}

// prepareLab makes sure that Pods of a rehearsal can run this command, and that the image of the servers is there.
func (f *openedFleet) prepareLab(ctx context.Context, all []fleetCluster, say flow.Say) error {
	if f.lab == nil {
		return nil
	}
	if err := f.lab.ProvideCommand(); err != nil {
		return err
	}
	for _, c := range all {
		if err := f.lab.Client.PrepareImages(ctx, c.cfg.Config, func(string, ...any) {}); err != nil {
			return err
		}
	}
	say("the lab's project has the image of the servers: in a rehearsal of a fleet it is not made by a run")
	return nil
}

// change is what is to be done with a cluster.
func (f *openedFleet) change(c fleetCluster, action string, arguments []string) (fleet.Change, error) {
	image, err := f.image()
	if err != nil {
		return fleet.Change{}, err
	}
	document, err := c.Document(c.decided)
	if err != nil {
		return fleet.Change{}, err
	}
	files, err := f.files()
	if err != nil {
		return fleet.Change{}, err
	}
	delete(files, fleet.FleetFile)
	files[fleet.ChangeConfigFile] = document
	token := f.Tokens[c.Token].Secret
	if token == "" || f.lab != nil {
		token = fleet.TokenSecretName(f.Name, c.Token)
	}
	return fleet.Change{Fleet: f.Name, Namespace: f.Namespace, Cluster: c.Name, Action: action, Image: image,
		Arguments: arguments, Files: files, Token: token, Account: fleet.AccountName(c.Name), Key: fleet.KeyName(c.Name),
		Retries: f.Retries, Deadline: f.Deadline, Consent: f.options.Yes}, nil
}

// providersJob is the Job that installs the providers, by the configuration of the fleet's first cluster: those of one
// management cluster have the same versions for all.
func (f *openedFleet) providersJob(ctx context.Context) (*corev1.ConfigMap, *batchv1.Job, error) {
	first, err := f.check(ctx, f.Clusters[:1])
	if err != nil {
		return nil, nil, err
	}
	if err := f.enterLab(ctx, first); err != nil {
		return nil, nil, err
	}
	change, err := f.change(first[0], fleet.Apply, nil)
	if err != nil {
		return nil, nil, err
	}
	m, job, err := fleet.ProvidersJob(f.Name, f.Namespace, change.Image, change.Files, f.Deadline)
	if err != nil {
		return nil, nil, &usage.Error{Err: err}
	}
	return m, job, nil
}

// changes are the changes that bring clusters to their configurations.
func (f *openedFleet) changes(all []fleetCluster) ([]fleet.Change, error) {
	var changes []fleet.Change
	for _, c := range all {
		arguments := []string{targetAll}
		if f.SkipDoctor || f.lab != nil { // the networks of a lab's clusters are parts of one
			arguments = append(arguments, "--skip-doctor")
		}
		change, err := f.change(c, fleet.Apply, arguments)
		if err != nil {
			return nil, err
		}
		if _, err := change.ConfigMap(); err != nil { // before anything is written
			return nil, &usage.Error{Err: err}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// token reads one of the fleet's tokens from where it is; that of a Secret is read from the management cluster.
func (f *openedFleet) token(ctx context.Context, name string) (platform.Secret, error) {
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
	f.console.hide.Learn(token.Reveal())
	return token, nil
}

// tokenOutside reads a token that is not in the management cluster. A file is relative to the folder of the fleet's.
func (f *openedFleet) tokenOutside(ctx context.Context, t fleet.Token) (platform.Secret, error) {
	switch {
	case t.Env != "" && f.console.environment[t.Env] == "":
		return platform.Secret{}, usage.Errorf("the environment variable %s is not set", t.Env)
	case t.Env != "":
		return settings.ParseToken(f.console.environment[t.Env], "the environment variable "+t.Env)
	case t.File != "":
		path := settings.InFolder(filepath.Dir(f.Path()), settings.AtHome(t.File, f.console.environment["HOME"]))
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

func (f *openedFleet) storedToken(ctx context.Context, name string) (platform.Secret, error) {
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

// secrets are the Secrets that the Jobs of clusters read and that this command writes: tokens, and the keys to the
// states; and the operator's key, which no Job of a cluster reads.
func (f *openedFleet) secrets(ctx context.Context, all []fleetCluster) (secrets []*corev1.Secret, err error) {
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
		token, err := f.token(ctx, c.Token)
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
func (f *openedFleet) refuseOtherToken(ctx context.Context, name string, token platform.Secret,
	wanted *corev1.Secret) error {
	is := &corev1.Secret{}
	err := f.management.Get(ctx, client.ObjectKeyFromObject(wanted), is)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("look for token %s of the fleet: %w", name, err)
	}
	if !absent && sameData(is.Data, wanted.Data) {
		return nil
	}
	if f.lab == nil { // the lab has but one, which may write
		tools := platform.Tools{Hetzner: session.HetznerClient(f.console.environment[settings.EndpointVariable], token, nil,
			f.console.caller().InspectionGovernor())}
		err := apply.CheckToken(ctx, tools, wanted.Namespace, wanted.Name)
		if errors.Is(err, hetzner.ErrReadOnly) || errors.Is(err, hetzner.ErrToken) {
			err = &usage.Error{Err: err}
		}
		if err != nil {
			return fmt.Errorf("token %s of the fleet: %w", name, err)
		}
	}
	if absent || f.options.Yes {
		return nil
	}
	return usage.Errorf("token %s of the fleet is another one than in Secret %s/%s, which all of its clusters use: if it is a new "+
		"one of the same Hetzner project, agree with --yes", name, wanted.Namespace, wanted.Name)
}

// identitySecret is the Secret with the operator's key, from which those to the states are made; nil: it is there.
// Another key than the one that is there is refused: it could not open what was written with that.
func (f *openedFleet) identitySecret(ctx context.Context) (secret *corev1.Secret, identity string, err error) {
	given, err := f.identity()
	if err != nil {
		return nil, "", err
	}
	if given == "" && f.lab != nil {
		if given, err = f.rehearsedIdentity(); err != nil {
			return nil, "", err
		}
	}
	is := &corev1.Secret{}
	err = f.management.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: fleet.IdentitySecret}, is)
	wanted := fleet.IdentitySecretOf(f.Namespace, []byte(given))
	switch {
	case apierrors.IsNotFound(err) && given == "":
		return nil, "", usage.Errorf("the states of the clusters are encrypted, and namespace %s has no key for them yet: name a file "+
			"with a secret key in STATE_IDENTITY_FILE, or put the key into STATE_IDENTITY in the environment\nage-keygen -o key.txt "+
			"creates one; keep a copy where the management cluster is not", f.Namespace)
	case apierrors.IsNotFound(err):
		return wanted, given, nil
	case err != nil:
		return nil, "", fmt.Errorf("look for the key to the states: %w", err)
	case given != "" && !sameData(is.Data, wanted.Data):
		return nil, "", usage.Errorf("Secret %s/%s has another key to the states than this command was given: states that were "+
			"written with it could not be opened any more. Leave STATE_IDENTITY and STATE_IDENTITY_FILE away to use the one that is "+
			"there", f.Namespace, fleet.IdentitySecret)
	}
	identity = string(is.Data[fleet.IdentitySecretKey])
	f.learnIdentity(identity)
	return nil, identity, nil
}

func sameData(a, b map[string][]byte) bool {
	for key, value := range b {
		if string(a[key]) != string(value) {
			return false
		}
	}
	return true
}

// storedIdentity is the key that opens the states: the one that is given, or that is in the management cluster; empty:
// there is none yet.
func (f *openedFleet) storedIdentity(ctx context.Context) (string, error) {
	if given, err := f.identity(); err != nil || given != "" || f.management == nil {
		return given, err
	}
	secret := &corev1.Secret{}
	err := f.management.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: fleet.IdentitySecret}, secret)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the key to the states: %w", err)
	}
	key := string(secret.Data[fleet.IdentitySecretKey])
	f.learnIdentity(key)
	return key, nil
}

// rehearsedIdentity is a key for the states of a rehearsal, which no other machine has to open. Of two processes that
// make it at once one does, and both use that.
func (f *openedFleet) rehearsedIdentity() (string, error) {
	path := filepath.Join(string(f.fleetState()), "state-identity.txt")
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
