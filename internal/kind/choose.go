package kind

import (
	"bytes"
	"context"

	"sigs.k8s.io/kind/pkg/cluster"

	"github.com/slipway-k8s/slipway/internal/doctor"
)

// engine is the program of a container engine.
type engine struct {
	name     string
	greeting string // with which it answers to -v: podman may answer to the name of docker
	ask      func(ctx context.Context, program string) (doctor.Engine, error)
	kind     func(program string) cluster.ProviderOption
}

// engines are in the order in which kind looks for them.
var engines = []engine{
	{"docker", "Docker version", dockerEngine, func(string) cluster.ProviderOption { return cluster.ProviderWithDocker() }},
	{"nerdctl", "nerdctl version", nerdctlEngine, cluster.ProviderWithNerdctl},
	{"finch", "finch version", nerdctlEngine, cluster.ProviderWithNerdctl},
	{"podman", "podman version", podmanEngine, func(string) cluster.ProviderOption { return cluster.ProviderWithPodman() }},
}

// there reports whether the program is on this machine.
func (e engine) there(ctx context.Context) bool {
	said, err := output(ctx, e.name, "-v")
	return err == nil && bytes.HasPrefix(said, []byte(e.greeting))
}

// choose is the engine that kind works with.
func choose(ctx context.Context) (engine, error) {
	for _, e := range engines {
		if e.there(ctx) {
			return e, nil
		}
	}
	return engine{}, errNoDocker
}
