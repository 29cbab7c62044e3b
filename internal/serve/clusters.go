package serve

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// servedCluster is a cluster that Serve was asked for.
type servedCluster struct {
	session.Cluster
	state   statedir.Dir
	targets []string
}

// readClusters reads the configurations, and touches nothing.
func readClusters(ctx context.Context, c *session.Caller, q session.Request, folders []string) ([]servedCluster,
	error) {
	switch {
	case len(folders) > 0 && q.Config != "":
		return nil, usage.Errorf("--config does not go with folders: each has its bootstrap.yaml")
	case len(folders) > 1 && q.StateDir != "":
		return nil, usage.Errorf("--state-dir is the folder of one cluster, and %d are named", len(folders))
	}
	given := []session.Request{q}
	if len(folders) > 0 {
		given = nil
	}
	for _, folder := range folders {
		one := q
		one.WorkDir = settings.InFolder(c.WorkDir, folder)
		one.Config = filepath.Join(one.WorkDir, "bootstrap.yaml")
		if _, err := os.Stat(one.Config); err != nil {
			return nil, usage.Errorf("folder %s is of no cluster: %w", folder, err)
		}
		given = append(given, one)
	}
	var all []servedCluster
	for _, one := range given {
		s, err := readCluster(ctx, c, one)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Cfg.ClusterName == s.Cfg.ClusterName || other.state == s.state {
				return nil, usage.Errorf("folders %s and %s are both of cluster %s: give each clusterName in its "+
					"bootstrap.yaml, and set no CLUSTER_NAME", other.WorkDir, s.WorkDir, s.Cfg.ClusterName)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// readCluster reads the configuration of one cluster.
func readCluster(ctx context.Context, c *session.Caller, q session.Request) (s servedCluster, err error) {
	q.WorkDir = cmp.Or(q.WorkDir, c.WorkDir)
	if s.Cluster, err = session.Load(c, q); err != nil {
		return s, err
	}
	from := s.WorkDir
	if s.StateDir != "" {
		from = c.WorkDir // where --state-dir was written
	}
	s.state = statedir.New(s.StateDir, s.Cfg.ClusterName, from)
	if err := s.state.CheckOwner(ctx, statedir.OwnerOf(s.Cfg.Config)); err != nil {
		return s, err
	}
	if err := session.RefuseOtherEnvironment(s.state, s.Lab); err != nil {
		return s, err
	}
	b, err := s.PlanOffline()
	if err != nil {
		return s, err
	}
	s.targets = []string{session.TargetBootstrap, session.TargetAll}
	for _, step := range b.Plan.Graph.Steps() {
		s.targets = append(s.targets, step.Name)
	}
	return s, nil
}

// openClusters opens the clusters. Those that are open are in the answer where it fails, too.
func openClusters(ctx context.Context, c *session.Caller, served []servedCluster, self string,
	o Options) (all []*cluster, err error) {
	for _, s := range served {
		words, env := s.commandLine(c, o.Flags)
		one, err := openCluster(ctx, clusterOptions{Name: s.Cfg.ClusterName, Dir: s.WorkDir, State: s.state,
			Environment: s.Environment(), Executable: self, Arguments: words, Env: env, Targets: s.targets,
			Hide: c.Hide, Log: o.Log})
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// commandLine is what a command needs to get to the cluster from its folder: what was given to this one. A value that
// is not to be read in a list of processes is in the environment.
func (s servedCluster) commandLine(c *session.Caller, flags func(session.Options) []string) (words, env []string) {
	o := s.Options
	o.StateDir = string(s.state)
	for _, path := range []*string{&o.Config, &o.Dir, &o.LabDir, &o.LabImages} {
		if *path != "" {
			*path = settings.InFolder(c.WorkDir, *path)
		}
	}
	words = flags(o)
	environment := map[string]string{}
	maps.Copy(environment, c.Environment)
	for _, v := range s.Values {
		if shown := v.Variable.Name + "=" + v.Value; v.Shown() == shown {
			words = append(words, shown)
		} else {
			environment[v.Variable.Name] = v.Value
		}
	}
	for name, value := range environment {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return words, env
}

// learnSecrets has the secrets of the clusters' files hidden, now and whenever it is called.
func learnSecrets(c *session.Caller, served []servedCluster, tokenFiles ...string) func() {
	whole, folders := []string{}, []string{}
	for _, path := range tokenFiles {
		if path != "" {
			whole = append(whole, settings.InFolder(c.WorkDir, path))
		}
	}
	for _, s := range served {
		folders = append(folders, string(s.state))
		for _, path := range []string{s.Cfg.TokenFile, s.Cfg.GitTokenFile, s.Cfg.BackupPassphraseFile,
			s.Cfg.BackupIdentityFile, s.Cfg.BackupAuthenticationKeyFile, s.Cfg.StateIdentityFile} {
			if path = settings.AtHome(path, c.Environment["HOME"]); path != "" {
				whole = append(whole, settings.InFolder(s.WorkDir, path))
			}
		}
		c.Hide.Learn(s.Cfg.Passwords()...)
	}
	for _, name := range child.SecretVariables() {
		c.Hide.Learn(c.Environment[name])
	}
	return redact.NewWatch(c.Hide, whole, folders).Learn
}
