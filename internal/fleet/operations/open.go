package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Request is who asks for an operation on a fleet, and which fleet it is about.
type Request struct {
	session.Request
	Caller *session.Caller
	File   string // the fleet's; empty: fleet.FleetFile
}

// variables are those that an operation on a fleet takes: the others are the clusters', and are in the file.
var variables = []string{"MANAGEMENT_KUBECONFIG", "STATE_IDENTITY_FILE", "LAB_PROGRAMS", "REGISTRY_CONFIG"}

// opened is a fleet with its management cluster.
type opened struct {
	*fleet.Fleet
	caller     *session.Caller
	asked      session.Options
	own        settings.Configuration // of the operation itself: what variables have
	overrides  string                 // folder of the operator's manifests/ and bootstrap/
	kubeconfig []byte                 // opens the management cluster
	management *kube.Cluster
	lab        *lab.Lab // nil: it is no rehearsal
	labInfo    lab.Info
}

// read reads the fleet's file. Nothing is asked of the management cluster.
func read(q Request) (*opened, error) {
	path := cmp.Or(q.File, fleet.FleetFile)
	for _, v := range q.Values {
		if !slices.Contains(variables, v.Variable.Name) {
			return nil, usage.Errorf("%s is not taken by the commands of fleet: write %s into defaults or into a cluster's "+
				"entry in %s", v.Variable.Name, v.Variable.Field, path)
		}
	}
	file, err := fleet.Read(settings.InFolder(q.Caller.WorkDir, path))
	if err != nil {
		return nil, err
	}
	for _, t := range file.Tokens {
		if t.Env != "" { // of the operator's choice
			child.Withdraw(t.Env)
		}
	}
	return withOwn(q, file)
}

// named is a fleet that is known by its name alone: what was applied of it is in the management cluster.
func named(q Request, name, namespace string) (*opened, error) {
	return withOwn(q, &fleet.Fleet{Spec: fleet.Spec{Name: name, Namespace: namespace}})
}

// withOwn reads the variables that are the operation's own.
func withOwn(q Request, file *fleet.Fleet) (f *opened, err error) {
	if q.VersionsFile != "" {
		return nil, usage.Errorf("--versions-file does not go with a fleet: its Jobs have the table of versions inside " +
			"their image")
	}
	f = &opened{Fleet: file, caller: q.Caller, asked: q.Options, overrides: filepath.Dir(file.Path())}
	if q.Dir != "" {
		f.overrides = settings.InFolder(f.caller.WorkDir, q.Dir)
	}
	environment := map[string]string{}
	for _, name := range variables {
		environment[name] = f.caller.Environment[name]
	}
	f.own, err = settings.Load(settings.Sources{Node: &yaml.Node{Kind: yaml.MappingNode}, Name: f.Path(),
		Environment: environment, Values: q.Values, WorkDir: f.caller.WorkDir})
	return f, err
}

// errNoManagement has two lines: what is missing, and how to do without.
var errNoManagement = errors.New("a fleet needs a management cluster: name its kubeconfig in MANAGEMENT_KUBECONFIG\n" +
	"to rehearse on this machine, with a management cluster of the lab: --lab")

// open connects to the management cluster. A rehearsal's is created where it is missing, unless it is only looked for:
// then f.management stays nil.
func (f *opened) open(ctx context.Context, looking bool) (err error) {
	switch path := f.own.ManagementKubeconfig; {
	case f.asked.Lab:
		if f.kubeconfig, err = f.openLab(ctx, looking); err == nil && f.kubeconfig == nil {
			return nil
		}
	case path != "":
		if f.kubeconfig, err = os.ReadFile(f.onThisMachine(path)); err != nil {
			err = usage.Errorf("read MANAGEMENT_KUBECONFIG: %w", err)
		}
	default:
		if f.kubeconfig, err = kube.PodKubeconfig(f.caller.Environment); errors.Is(err, kube.ErrNoPod) {
			err = &usage.Error{Err: errNoManagement}
		}
	}
	if err != nil {
		return err
	}
	if f.management, err = kube.ConnectTrusted(f.kubeconfig); err != nil {
		return usage.Errorf("open the management cluster: %w", err)
	}
	if err := f.management.Ready(ctx); err != nil {
		return fmt.Errorf("the management cluster at %s does not answer: %w", f.management.Host(), err)
	}
	return nil
}

// onThisMachine is a path of the operation's own variables, which is relative to the caller's folder.
func (f *opened) onThisMachine(path string) string {
	return settings.InFolder(f.caller.WorkDir, settings.AtHome(path, f.caller.Environment["HOME"]))
}

// openExisting is open for what needs a management cluster to which the fleet was applied.
func (f *opened) openExisting(ctx context.Context) error {
	if err := f.open(ctx, true); err != nil {
		return err
	}
	if f.management == nil {
		return fmt.Errorf("the lab has no management cluster of fleet %s: %w", f.Name, fleet.ErrNone)
	}
	return nil
}

// readExisting is read and openExisting.
func readExisting(ctx context.Context, q Request) (*opened, error) {
	f, err := read(q)
	if err != nil {
		return nil, err
	}
	return f, f.openExisting(ctx)
}

// folder is that of a fleet's rehearsals on this machine.
func (f *opened) folder() statedir.Dir {
	return statedir.New(f.asked.StateDir, "fleet-"+f.Name, f.caller.WorkDir)
}

// labCommand is a command for the lab of the fleet, which is in the fleet's own state folder.
func (f *opened) labCommand(word string) string {
	words := []string{"lab", word}
	if f.asked.StateDir == "" && f.asked.LabDir == "" {
		words = append(words, "--state-dir", filepath.Join(statedir.StateFolderIn, "fleet-"+f.Name))
	}
	return f.caller.Command(words...)
}

// openLab makes sure that the lab is up, with a management cluster for the fleet.
func (f *opened) openLab(ctx context.Context, looking bool) ([]byte, error) {
	k := session.Cluster{Caller: f.caller, Request: session.Request{Options: f.asked}, Cfg: f.own}
	l, err := k.LabToStart(f.folder())
	if err != nil {
		return nil, err
	}
	f.lab = l
	if looking {
		f.labInfo, err = l.Answering(ctx)
	} else {
		if err := l.Possible(ctx); err != nil {
			return nil, err
		}
		f.labInfo, err = l.Up(ctx, f.caller.Note)
	}
	if errors.Is(err, lab.ErrDown) {
		return nil, fmt.Errorf("%w: %s starts it, and so does fleet apply", err, f.labCommand("up"))
	}
	if err != nil {
		return nil, err
	}
	f.caller.Hide.Learn(f.labInfo.Token)
	management := lab.Management{Client: l.Client, Kubernetes: f.own.KubernetesVersion}
	name, say := "fleet-"+f.Name, f.caller.Note
	if looking {
		exists, err := management.Exists(ctx, name)
		if err != nil || !exists {
			return nil, err
		}
		say = func(string, ...any) {}
	}
	kubeconfig, err := management.Ensure(ctx, name, say)
	if err != nil || looking {
		return kubeconfig, err
	}
	return kubeconfig, f.keepKubeconfig(kubeconfig)
}

// keepKubeconfig writes the kubeconfig of a rehearsal's management cluster into the fleet's state folder, for the
// operator. Several processes may do so at once.
func (f *opened) keepKubeconfig(kubeconfig []byte) error {
	err := writeWhole(filepath.Join(string(f.folder()), platform.ManagementKubeconfig), kubeconfig, os.Rename)
	if err != nil {
		return fmt.Errorf("write the kubeconfig of the management cluster: %w", err)
	}
	return nil
}

// writeWhole writes a file that only its owner may read, under a name of its own, and then places it: by os.Rename over
// what is there, or by os.Link only where nothing is.
func writeWhole(path string, data []byte, place func(from, to string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // gone already where it was renamed
	_, err = part.Write(data)
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	return place(part.Name(), path)
}

// enterLab lets a rehearsal decide what it does of each cluster.
func (f *opened) enterLab(ctx context.Context, all []cluster) error {
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
func (f *opened) prepareLab(ctx context.Context, all []cluster) error {
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
	f.caller.Note("the lab's project has the image of the servers: in a rehearsal of a fleet it is not made by a run")
	return nil
}
