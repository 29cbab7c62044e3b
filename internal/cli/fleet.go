package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// defaultFleetFile is read where no other file is named.
const defaultFleetFile = "fleet.yaml"

// fleetOptions are the flags of fleet and of what is below it.
type fleetOptions struct {
	Clusters  []string // only these
	Again     bool
	Detach    bool
	Follow    bool
	Namespace string
	Revision  string
}

func newFleetCommand(in *invocation) *cobra.Command {
	var o fleetOptions
	bound := func(do func(context.Context, *console, arguments, fleetOptions) error) action {
		return func(ctx context.Context, c *console, a arguments) error { return do(ctx, c, a, o) }
	}
	only := func(cmd *cobra.Command, doc string) {
		cmd.Flags().StringSliceVar(&o.Clusters, "cluster", nil, doc)
	}
	apply := in.command("apply [FILE]", "", "change the clusters of the fleet, as Jobs in its management cluster",
		bound(runFleetApply))
	only(apply, "change only the cluster `NAME`; may be given several times")
	apply.Flags().BoolVar(&o.Again, "again", false, "also run for the clusters whose last change is done and is the same")
	apply.Flags().BoolVar(&o.Detach, "detach", false,
		"have a Job in the management cluster begin one cluster after another, "+
			"and return")
	plan := in.command("plan [FILE]", "", "show what apply would do with each cluster, and what that costs",
		bound(runFleetPlan))
	only(plan, "plan only the cluster `NAME`; may be given several times")
	render := in.command("render [FILE]", "", "print the manifests of a Job that applies the fleet, to be kept in Git",
		bound(runFleetRender))
	status := in.command("status [FILE]", "", "show where the change of each cluster is", bound(runFleetStatus))
	logs := in.command("logs CLUSTER [FILE]", "", "print what the run of a cluster writes", bound(runFleetLogs))
	logs.Flags().BoolVarP(&o.Follow, "follow", "f", false, "follow it until the cluster's Job has ended")
	destroy := in.command("destroy [FILE]", "", "delete clusters of the fleet, as Jobs in its management cluster",
		bound(runFleetDestroy))
	only(destroy, "delete only the cluster `NAME`, which need not be in the file any more; may be given several times")
	stop := in.command("stop [FILE]", "", "begin no further cluster of the fleet; Jobs that have begun go on",
		bound(runFleetStop))
	advance := in.command("advance FLEET", "", "begin the Jobs of a fleet that was applied, one after another",
		bound(runFleetAdvance))
	advance.Flags().StringVar(&o.Namespace, "namespace", fleet.DefaultNamespace, "`NAMESPACE` of the fleet")
	providers := in.command("providers FLEET", "",
		"install the providers in the management cluster, for a fleet's clusters",
		bound(runFleetProviders))
	providers.Flags().StringVar(&o.Namespace, "namespace", fleet.DefaultNamespace, "`NAMESPACE` of the fleet")
	advance.Flags().StringVar(&o.Revision, "revision", "", "do nothing where the newest rollout is not `REVISION`")
	return in.parent("fleet", groupCluster, "many clusters, changed by Jobs in a management cluster", plan, apply, status,
		logs,
		stop, destroy, render, advance, providers)
}

// fleetVariables are the variables that a command of fleet takes: the others are the clusters', and are in the file.
var fleetVariables = []string{"MANAGEMENT_KUBECONFIG", "STATE_IDENTITY_FILE", "LAB_PROGRAMS", "REGISTRY_CONFIG"}

// openedFleet is a fleet with its management cluster.
type openedFleet struct {
	*fleet.Fleet
	console    *console
	options    options
	own        settings.Configuration // of the command itself: what fleetVariables have
	overrides  string                 // folder of the operator's manifests/ and bootstrap/
	kubeconfig []byte                 // opens the management cluster
	management *kube.Cluster
	lab        *lab.Lab // nil: it is no rehearsal
	labInfo    lab.Info
}

// readFleet reads the fleet's file. Nothing is asked of the management cluster.
func readFleet(c *console, a arguments, path string) (*openedFleet, error) {
	if path == "" {
		path = defaultFleetFile
	}
	for _, v := range a.Values {
		if !slices.Contains(fleetVariables, v.Variable.Name) {
			return nil, usage.Errorf("%s is not taken by the commands of fleet: write %s into defaults or into a cluster's entry "+
				"in %s", v.Variable.Name, v.Variable.Field, path)
		}
	}
	file, err := fleet.Read(settings.InFolder(c.workDir, path))
	if err != nil {
		return nil, err
	}
	for _, t := range file.Tokens {
		if t.Env != "" { // of the operator's choice
			child.Withdraw(t.Env)
		}
	}
	f := &openedFleet{Fleet: file, console: c, options: a.Options, overrides: filepath.Dir(file.Path())}
	if a.Options.Dir != "" {
		f.overrides = settings.InFolder(c.workDir, a.Options.Dir)
	}
	return f, f.readOwn(a)
}

// readOwn reads the variables that are the command's own.
func (f *openedFleet) readOwn(a arguments) (err error) {
	environment := map[string]string{}
	for _, name := range fleetVariables {
		environment[name] = f.console.environment[name]
	}
	f.own, err = settings.Load(settings.Sources{Node: &yaml.Node{Kind: yaml.MappingNode}, Name: f.Path(),
		Environment: environment, Values: a.Values, WorkDir: f.console.workDir})
	return err
}

// selected are the clusters of the flag --cluster; all, without it.
func (f *openedFleet) selected(names []string) ([]fleet.Cluster, error) {
	if len(names) == 0 {
		return f.Clusters, nil
	}
	var all []fleet.Cluster
	for _, name := range names {
		if f.Find(name) == nil {
			var known []string
			for _, c := range f.Clusters {
				known = append(known, c.Name)
			}
			return nil, usage.Errorf("%s has no cluster %q%s", f.Path(), name, usage.DidYouMean("", name, known))
		}
	}
	for _, c := range f.Clusters { // in the file's order
		if slices.Contains(names, c.Name) {
			all = append(all, c)
		}
	}
	return all, nil
}

// errNoManagement has two lines: what is missing, and how to do without.
var errNoManagement = errors.New("a fleet needs a management cluster: name its kubeconfig in MANAGEMENT_KUBECONFIG\n" +
	"to rehearse on this machine, with a management cluster of the lab: --lab")

// open connects to the management cluster. A rehearsal's is created where it is missing, unless it is only looked for:
// then f.management stays nil.
func (f *openedFleet) open(ctx context.Context, looking bool, say flow.Say) (err error) {
	switch path := f.own.ManagementKubeconfig; {
	case f.options.Lab:
		if f.kubeconfig, err = f.openLab(ctx, looking, say); err == nil && f.kubeconfig == nil {
			return nil
		}
	case path != "":
		path = settings.InFolder(f.console.workDir, settings.AtHome(path, f.console.environment["HOME"]))
		if f.kubeconfig, err = os.ReadFile(path); err != nil {
			err = usage.Errorf("read MANAGEMENT_KUBECONFIG: %w", err)
		}
	default:
		if f.kubeconfig, err = kube.PodKubeconfig(f.console.environment); errors.Is(err, kube.ErrNoPod) {
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

// openExisting is open for what needs a management cluster to which the fleet was applied.
func (f *openedFleet) openExisting(ctx context.Context) error {
	if err := f.open(ctx, true, sayLines(f.console)); err != nil {
		return err
	}
	if f.management == nil {
		return fmt.Errorf("the lab has no management cluster of fleet %s: %w", f.Name, fleet.ErrNone)
	}
	return nil
}

// fleetState is the folder of a fleet's rehearsals on this machine.
func (f *openedFleet) fleetState() statedir.Dir {
	return statedir.New(f.options.StateDir, "fleet-"+f.Name, f.console.workDir)
}

// labCommand is a command for the lab of the fleet, which is in the fleet's own state folder.
func (f *openedFleet) labCommand(words ...string) string {
	given := f.console.given
	if given.Options.StateDir == "" && given.Options.LabDir == "" {
		given.Options.StateDir = filepath.Join(statedir.StateFolderIn, "fleet-"+f.Name)
	}
	return composeCommandLine(given, f.console.environment, append([]string{"lab"}, words...))
}

// openLab makes sure that the lab is up, with a management cluster for the fleet.
func (f *openedFleet) openLab(ctx context.Context, looking bool, say flow.Say) ([]byte, error) {
	l, err := f.console.cluster(arguments{Options: f.options}, f.own).LabToStart(f.fleetState())
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
		f.labInfo, err = l.Up(ctx, say)
	}
	if errors.Is(err, lab.ErrDown) {
		return nil, fmt.Errorf("%w: %s starts it, and so does fleet apply", err, f.labCommand("up"))
	}
	if err != nil {
		return nil, err
	}
	f.console.hide.Learn(f.labInfo.Token)
	management := lab.Management{Client: l.Client}
	name := "fleet-" + f.Name
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
func (f *openedFleet) keepKubeconfig(kubeconfig []byte) error {
	err := writeWhole(filepath.Join(string(f.fleetState()), platform.ManagementKubeconfig), kubeconfig, os.Rename)
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

// decided are the variables of a cluster that its fleet decides.
func (f *openedFleet) decided(c fleet.Cluster) []settings.Assignment {
	all := []settings.Assignment{
		settings.Assign("MANAGEMENT", config.ManagementExisting),
		settings.Assign("STATE", f.stateOf(c.Name)),
		settings.Assign("PIVOT", strconv.FormatBool(f.Pivot)),
	}
	if !c.Has("namespace") {
		// A namespace for each: clusters can have different tokens then, and each can be moved alone.
		all = append(all, settings.Assign("NAMESPACE", c.Name))
	}
	return all
}

// identity is the key that opens the states: that of the environment or of a file; empty: there is none.
func (f *openedFleet) identity() (string, error) {
	if text := f.console.environment[settings.StateIdentityVariable]; text != "" {
		f.learnIdentity(text)
		return text, nil
	}
	if f.own.StateIdentityFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(settings.InFolder(f.console.workDir, settings.AtHome(f.own.StateIdentityFile,
		f.console.environment["HOME"])))
	if err != nil {
		return "", usage.Errorf("read the key to the states (STATE_IDENTITY_FILE): %w", err)
	}
	f.learnIdentity(string(data))
	return string(data), nil
}

// learnIdentity has the keys of an identity hidden: each is a line.
func (f *openedFleet) learnIdentity(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			f.console.hide.Learn(line)
		}
	}
}
