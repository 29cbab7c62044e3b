package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Load is the cluster that a request names, with the configuration that it and the environment name: the values that
// the operator's manifests have in the place of variables are in it.
func Load(c *Caller, q Request) (Cluster, error) {
	k := Cluster{Caller: c, Request: q}
	table, err := q.Table(c.WorkDir)
	if err != nil {
		return k, err
	}
	k.Cfg, err = settings.Load(settings.Sources{
		File: q.Config, Dir: q.Dir, Base: q.Base, Environment: c.Environment, Values: q.Values, WorkDir: q.WorkDir,
		Table: table, Kept: func(cfg config.Config) settings.Kept {
			return k.keptIn(context.Background(), statedir.New(q.StateDir, cfg.ClusterName, c.WorkDir), cfg)
		},
	})
	if err == nil && !q.Lab {
		err = checkEngine(k.Cfg)
	}
	if err == nil {
		k.Cfg, err = WithLiterals(k.Cfg)
	}
	return k, err
}

// Table is what is known of versions.
func (o Options) Table(workDir string) (*config.Table, error) {
	if o.VersionsFile == "" {
		return config.Shipped(), nil
	}
	data, err := os.ReadFile(settings.InFolder(workDir, o.VersionsFile))
	if err != nil {
		return nil, usage.Errorf("--versions-file: %w", err)
	}
	table, err := config.ParseTable(data)
	if err != nil {
		return nil, usage.Errorf("--versions-file %s: %w: take config/versions.yaml of a release, or leave the flag out",
			o.VersionsFile, err)
	}
	return table, nil
}

// keptIn is the version set of the cluster that a state folder is of, where that is the configured one.
func (k Cluster) keptIn(ctx context.Context, state statedir.Dir, cfg config.Config) settings.Kept {
	if other, err := OtherEnvironment(state, k.Environment()); err != nil || other {
		return settings.Kept{}
	}
	set, made := state.VersionSet(ctx, statedir.OwnerOf(cfg))
	return settings.Kept{Cluster: made, Set: set}
}

// keepVersions gives the configuration the version set of the cluster, as a state folder has it that was not at hand
// when the configuration was loaded.
func (k *Cluster) keepVersions(ctx context.Context, state statedir.Dir) (err error) {
	k.Cfg, err = k.Cfg.Keep(k.keptIn(ctx, state, k.Cfg.Config))
	return err
}

// WithLiterals is a configuration with the values that the manifests have in the place of its variables: they are
// what is checked, priced and waited for, because they are what is applied.
func WithLiterals(cfg settings.Configuration) (settings.Configuration, error) {
	sources, err := render.Read(render.VariablesOf(cfg.Config), cfg.Overrides)
	if err != nil {
		return cfg, nil // whoever applies the files says more; others do without them
	}
	literals, err := checks.Literals(cfg.Config, sources)
	if err != nil || len(literals) == 0 {
		return cfg, nil // as above
	}
	for _, l := range literals {
		if l.OfPools {
			cfg = withPoolLiteral(cfg, l)
			continue
		}
		v := settings.Variable(l.Name)
		is, configured := settings.Literal{Field: v.Field, Place: l.Place()}, v.Get(cfg.Config)
		if configured != l.Value {
			is.Note = l.Note(configured)
		}
		if l.Beside {
			is.Field = ""
			cfg.Literals = append(cfg.Literals, is)
		} else if err := cfg.Decide(v, l.Value, is); err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.Check()
}

// withPoolLiteral is a configuration whose worker pools all have a value of manifests/worker-pool.yaml.
func withPoolLiteral(cfg settings.Configuration, l checks.Literal) settings.Configuration {
	cfg.Workers, cfg.Places = slices.Clone(cfg.Workers), maps.Clone(cfg.Places)
	is := settings.Literal{Place: l.Place()}
	for i := range cfg.Workers {
		pool, filled := &cfg.Workers[i], cfg.Pool(cfg.Workers[i])
		value, configured, field := &pool.ServerType, filled.ServerType, "serverType"
		switch l.Name {
		case render.WorkerImageVariable:
			value, configured, field = &pool.Image, filled.Image, "image"
		case render.WorkerLocationVariable:
			value, configured, field = &pool.Location, filled.Location, "location"
		}
		if configured != l.Value {
			is.Note = l.Note(configured)
		}
		*value = l.Value
		cfg.Places[fmt.Sprintf("workers[%d].%s", i, field)] = l.Place()
	}
	cfg.Literals = append(slices.Clone(cfg.Literals), is)
	return cfg
}

// NoteLiterals names each value of the manifests that counts in place of another one that is configured, and the
// version set that the cluster keeps in place of the newest.
func (k Cluster) NoteLiterals() {
	k.NoteVersions()
	for _, l := range k.Cfg.Literals {
		if l.Note != "" {
			k.Caller.Note("%s", l.Note)
		}
	}
}

// NoteVersions says that VERSIONS names the newest set, and the cluster keeps another one.
func (k Cluster) NoteVersions() {
	if newer := k.Cfg.NewerSet(); newer != "" {
		k.Caller.noteOnce("VERSIONS=%s is the version set %s now; this cluster keeps %s until it is upgraded (%s)",
			config.CurrentSet, newer, k.Cfg.Versions, k.Caller.Command("upgrade", "--to-set", config.CurrentSet))
	}
}
