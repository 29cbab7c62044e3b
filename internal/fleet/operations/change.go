package operations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
)

// changeOf is what is to be done with a cluster.
func (f *opened) changeOf(c cluster, action string, arguments []string) (fleet.Change, error) {
	image, err := f.imageOf()
	if err != nil {
		return fleet.Change{}, err
	}
	document, err := c.Document(c.decided)
	if err != nil {
		return fleet.Change{}, err
	}
	files, err := f.filesOf()
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
		Retries: f.Retries, Deadline: f.Deadline, Consent: f.asked.Yes}, nil
}

// changesOf are the changes that bring clusters to their configurations.
func (f *opened) changesOf(all []cluster) ([]fleet.Change, error) {
	var changes []fleet.Change
	for _, c := range all {
		arguments := []string{session.TargetAll}
		if f.SkipDoctor || f.lab != nil { // the networks of a lab's clusters are parts of one
			arguments = append(arguments, "--skip-doctor")
		}
		change, err := f.changeOf(c, fleet.Apply, arguments)
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

// providersJob is the Job that installs the providers, by the configuration of the fleet's first cluster: those of one
// management cluster have the same versions for all.
func (f *opened) providersJob(ctx context.Context) (*corev1.ConfigMap, *batchv1.Job, error) {
	first, err := f.check(ctx, f.Clusters[:1])
	if err != nil {
		return nil, nil, err
	}
	if err := f.enterLab(ctx, first); err != nil {
		return nil, nil, err
	}
	change, err := f.changeOf(first[0], fleet.Apply, nil)
	if err != nil {
		return nil, nil, err
	}
	m, job, err := fleet.ProvidersJob(f.Name, f.Namespace, change.Image, change.Files, f.Deadline)
	if err != nil {
		return nil, nil, &usage.Error{Err: err}
	}
	return m, job, nil
}

// filesOf are the fleet's file and the operator's files.
func (f *opened) filesOf() (map[string][]byte, error) {
	data, err := os.ReadFile(f.Path())
	if err != nil {
		return nil, usage.Errorf("read the fleet: %w", err)
	}
	files := map[string][]byte{fleet.FleetFile: data}
	sources, err := render.Read(nil, f.overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	for _, s := range sources.All() {
		if s.Own {
			files[s.Path] = s.Data
		}
	}
	return files, nil
}

// imageOf is the image of the Jobs, as the file names it.
func (f *opened) imageOf() (string, error) {
	if f.lab != nil {
		return lab.CommandImage, nil
	}
	if f.Image == "" {
		return "", usage.Errorf("%s: image is missing: name the image of Slipway that the Jobs run, in a registry that the "+
			"management cluster reaches", f.Path())
	}
	return f.Image, nil
}

// pinImage finds out which digest the tag of the fleet's image stands for now: all Jobs run that one, whatever the tag
// becomes. In a rehearsal the image is this command itself.
func (f *opened) pinImage(ctx context.Context) error {
	reference, err := f.imageOf()
	if err != nil || f.lab != nil {
		return err
	}
	if f.Image, err = f.pinned(ctx, reference); err != nil {
		return err
	}
	if f.Image != reference {
		f.caller.Note("all Jobs run the image %s: %s stands for this digest now", f.Image, reference)
	}
	return nil
}

// pinned is a reference with the digest that its tag stands for now.
func (f *opened) pinned(ctx context.Context, reference string) (string, error) {
	programs, err := lab.NewPrograms(f.own.Config, f.caller.WorkDir, f.overrides)
	if err != nil {
		return "", &usage.Error{Err: err}
	}
	store := images.Store{Registries: programs.Registries}
	digest, err := store.Digest(ctx, reference)
	switch {
	case errors.Is(err, images.ErrReference):
		return "", usage.Errorf("%s: %w", f.Path(), err)
	case err != nil:
		return "", fmt.Errorf("%w\nthe Jobs change clusters, so the image that they run is fixed by its digest: where its "+
			"registry is not reached from here, write the digest into image (%s@sha256:…)", err, reference)
	}
	if strings.Contains(reference, "@") {
		return reference, nil
	}
	return reference + "@" + digest, nil
}

// Manifests are a Job that applies a fleet inside its management cluster, and what it needs.
type Manifests struct {
	Fleet, Namespace string
	Secrets          []string // that are not in Objects, each with its key
	Objects          []client.Object
}

// Render makes the manifests of a Job that applies the fleet inside its management cluster. It asks nothing of
// anything.
func Render(ctx context.Context, q Request) (m Manifests, err error) {
	if q.Lab {
		return m, usage.Errorf("fleet render prints manifests for Git, and those of a rehearsal are of no use there: run " +
			"without --lab")
	}
	f, clusters, err := checked(ctx, q, nil)
	if err != nil {
		return m, err
	}
	secrets := map[string]bool{fleet.IdentitySecret + " (" + fleet.IdentitySecretKey + ")": true}
	for _, cluster := range clusters {
		secret := f.Tokens[cluster.Token].Secret
		if secret == "" {
			return m, usage.Errorf("%s: token %s is read on this machine, and the Job in the management cluster has none "+
				"of its files, variables and programs: create a Secret with the key %s in namespace %s, and name it as secret: in "+
				"tokens", f.Path(), cluster.Token, fleet.TokenSecretKey, f.Namespace)
		}
		secrets[secret+" ("+fleet.TokenSecretKey+")"] = true
	}
	files, err := f.filesOf()
	if err != nil {
		return m, err
	}
	image, err := f.imageOf()
	if err != nil {
		return m, err
	}
	if !strings.Contains(image, "@") {
		f.caller.Note("the Job, an administrator of the management cluster, takes the image %s by its tag: write image with "+
			"its digest (@sha256:…), so that whoever can change the tag does not change what runs", image)
	}
	config, job, err := fleet.Applier(f.Name, f.Namespace, image, files, f.Deadline*time.Duration(len(clusters)))
	if err != nil {
		return m, &usage.Error{Err: err}
	}
	return Manifests{Fleet: f.Name, Namespace: f.Namespace, Secrets: slices.Sorted(maps.Keys(secrets)),
		Objects: append(fleet.Shared(f.Namespace), config, job)}, nil
}
