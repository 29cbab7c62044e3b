package settings

import (
	"fmt"
	"maps"
	"strings"

	"github.com/slipway-k8s/slipway/config"
)

// Kept is the version set that a cluster was made with, or was upgraded to.
type Kept struct {
	Cluster bool   // there is one
	Set     string // empty: a release recorded it that recorded no set
}

// setPlace begins the place of a version that comes from a set.
const setPlace = "version set "

// useVersionSet takes from a version set the versions that no source names. The set is the one that VERSIONS names;
// where it names none, or names the newest, it is the one of the cluster. An unknown set is Check's.
func (c *Configuration) useVersionSet(kept Kept) error {
	name, place, follows := c.versionsWritten, c.Places["versions"], c.FollowsCluster()
	switch {
	case follows && kept.Cluster && kept.Set != "":
		name, place = kept.Set, "of this cluster"
	case follows && kept.Cluster:
		name, place = c.Table().EarlierSet(name), "of this cluster"
	}
	set, known := c.Table().Set(name)
	switch {
	case !known:
		c.Versions = name
		return nil
	case follows && set.Name == c.Versions: // its versions are there
		return nil
	}
	return set.Apply(&c.Config, func(v config.Variable) bool {
		if _, is := set.Versions[v.Name]; !is {
			return true
		}
		if is, written := c.Places[v.Field]; written && !strings.HasPrefix(is, setPlace) {
			return true
		}
		c.Places[v.Field] = fmt.Sprintf("%s%s (%s)", setPlace, set.Name, place)
		return false
	})
}

// OfProgram is the configuration of a program, which records no places. Versions that are not those of the default set
// are the program's own; the others follow the cluster, once there is one.
func OfProgram(cfg config.Config) Configuration {
	c := Configuration{Config: cfg, Places: map[string]string{}}
	standard, _ := cfg.Table().Set("")
	if set, known := cfg.Table().Set(cfg.Versions); known && set.Name != standard.Name {
		c.versionsWritten, c.Versions = cfg.Versions, set.Name
	}
	for _, v := range config.Variables() {
		if version, is := standard.Versions[v.Name]; is && v.Get(cfg) != version {
			c.Places[v.Field] = "the program"
		}
	}
	return c
}

// kept is Kept, where there is one.
func (s Sources) kept(c config.Config) Kept {
	if s.Kept == nil {
		return Kept{}
	}
	return s.Kept(c)
}

// FollowsCluster reports whether the version set is that of the cluster, once there is one: no source names a set, or
// one names the newest, which another release takes for another.
func (c Configuration) FollowsCluster() bool {
	return c.versionsWritten == "" || c.versionsWritten == config.CurrentSet
}

// Keep is the configuration with the version set of its cluster, for one that was loaded before the state of the
// cluster was at hand.
func (c Configuration) Keep(kept Kept) (Configuration, error) {
	if !c.FollowsCluster() || c.FromBackup || !kept.Cluster {
		return c, nil
	}
	c.Places = maps.Clone(c.Places)
	if err := c.useVersionSet(kept); err != nil {
		return c, err
	}
	return c, c.Check()
}

// NewerSet is the name of the set that VERSIONS names as the newest, where the cluster keeps another one; empty: it
// does not.
func (c Configuration) NewerSet() string {
	newest, _ := c.Table().Set(config.CurrentSet)
	if c.versionsWritten != config.CurrentSet || newest.Name == c.Versions {
		return ""
	}
	return newest.Name
}
