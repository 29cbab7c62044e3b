package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kind/pkg/cluster"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// engine is the program of a container engine.
type engine struct {
	name     string
	greeting string // with which it answers to -v: podman may answer to the name of docker
	ask      func(ctx context.Context, program string) (platform.Engine, error)
	kind     func(program string) cluster.ProviderOption
	named    bool // it is looked for only where engineVariable names it
}

// engines are in the order in which kind looks for them.
var engines = []engine{
	{name: "docker", greeting: "Docker version", ask: dockerEngine,
		kind: func(string) cluster.ProviderOption { return cluster.ProviderWithDocker() }},
	{name: "nerdctl", greeting: "nerdctl version", ask: nerdctlEngine, kind: cluster.ProviderWithNerdctl},
	{name: "finch", greeting: "finch version", ask: nerdctlEngine, kind: cluster.ProviderWithNerdctl},
	{name: "podman", greeting: "podman version", ask: podmanEngine,
		kind: func(string) cluster.ProviderOption { return cluster.ProviderWithPodman() }},
	{name: "nerdctl.lima", greeting: "nerdctl version", ask: nerdctlEngine, kind: cluster.ProviderWithNerdctl,
		named: true},
}

// there reports whether the program is on this machine.
func (e engine) there(ctx context.Context) bool {
	said, err := output(ctx, e.name, "-v")
	return err == nil && bytes.HasPrefix(said, []byte(e.greeting))
}

// engineVariable is kind's own: it names the engine, in place of the first that is found.
const engineVariable = "KIND_EXPERIMENTAL_PROVIDER"

// otherwise is what an operator without a container engine can do.
const otherwise = "or set MANAGEMENT=local, which needs none (Linux), or name an existing cluster in " +
	"MANAGEMENT_KUBECONFIG, or rehearse without any of them (--lab)"

var errNoDocker = errors.New("neither Docker, nerdctl, finch nor podman is on this machine: install one, " + otherwise)

// CheckEngine refuses a value of KIND_EXPERIMENTAL_PROVIDER that kind does not know. Its error is a usage.Error.
func CheckEngine() error {
	_, _, err := namedEngine()
	return err
}

func namedEngine() (e engine, named bool, err error) {
	name := os.Getenv(engineVariable)
	if name == "" {
		return engine{}, false, nil
	}
	var known []string
	for _, e := range engines {
		if e.name == name {
			return e, true, nil
		}
		known = append(known, e.name)
	}
	return engine{}, false, usage.Errorf("%s=%q is no container engine that kind works with: set it to one of %s, or "+
		"unset it",
		engineVariable, name, strings.Join(known, ", "))
}

// chooser chooses the engine that kind works with, once. The zero value knows no state folder.
type chooser struct {
	files  platform.Files
	mu     sync.Mutex
	chosen *engine
}

// engine is the one that KIND_EXPERIMENTAL_PROVIDER names, or the one that has the state folder's cluster, or the first
// that answers.
func (c *chooser) engine(ctx context.Context) (engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chosen != nil {
		return *c.chosen, nil
	}
	e, err := c.choose(ctx)
	if err == nil {
		c.chosen = &e
	}
	return e, err
}

func (c *chooser) choose(ctx context.Context) (engine, error) {
	e, named, err := namedEngine()
	if err != nil {
		return engine{}, err
	}
	record, err := recordIn(c.files)
	if err != nil {
		return engine{}, err
	}
	if i := slices.IndexFunc(engines, func(e engine) bool { return e.name == record.Engine }); i >= 0 {
		if named && e.name != record.Engine {
			return engine{}, usage.Errorf("%s=%s, but the kind cluster %s of this state folder is in %s (%s): unset it, or, "+
				"where that cluster is gone for good, remove \"engine\" from that file", engineVariable, e.name, record.Name,
				record.Engine, c.files.Path(ownership.File))
		}
		e, named = engines[i], true
	}
	if named && !e.there(ctx) {
		return engine{}, fmt.Errorf("%s is not on this machine, or does not answer to -v, and no other container engine is "+
			"asked, because %s: install it", e.name, c.why(e))
	}
	if named {
		return e, nil
	}
	return first(ctx, !c.hasCluster(record))
}

// why says why no other engine than e is asked.
func (c *chooser) why(e engine) string {
	if os.Getenv(engineVariable) == e.name {
		return engineVariable + " names it"
	}
	return "it has the management cluster of this state folder (" + c.files.Path(ownership.File) + ")"
}

// hasCluster reports whether there may be a cluster of this state folder, of a release that did not record its engine:
// another engine that answers would say that there is none.
func (c *chooser) hasCluster(record ownership.Management) bool {
	_, err := c.files.Read(platform.ManagementKubeconfig)
	return err == nil || record.UID != ""
}

// first is the first engine on this machine, or the first that answers: a client may be there without its engine.
func first(ctx context.Context, answers bool) (engine, error) {
	var there []engine
	for _, e := range engines {
		if !e.named && e.there(ctx) {
			there = append(there, e)
		}
	}
	switch {
	case len(there) == 0:
		return engine{}, errNoDocker
	case len(there) == 1 || !answers:
		return there[0], nil
	}
	var silent []string
	for _, e := range there {
		_, err := e.ask(ctx, e.name)
		if err == nil {
			return e, nil
		}
		silent = append(silent, err.Error())
	}
	return engine{}, fmt.Errorf("no container engine answers (%s): start one, %s", strings.Join(silent, "; "), otherwise)
}
