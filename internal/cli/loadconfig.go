package cli

import "github.com/slipway-k8s/slipway/internal/settings"

// loadConfig reads the configuration that the arguments and the environment name.
func loadConfig(a arguments, environment map[string]string) (settings.Configuration, error) {
	return settings.Load(settings.Sources{
		File: a.Options.Config, Dir: a.Options.Dir, Base: a.base, Environment: environment, Values: a.Values,
		WorkDir: a.workDir,
	})
}
