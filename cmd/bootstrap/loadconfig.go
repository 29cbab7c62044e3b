package main

// loadConfig reads the configuration that the arguments and the environment name.
func loadConfig(a arguments, environment map[string]string) (configuration, error) {
	return loadFrom(sources{
		file: a.Options.Config, dir: a.Options.Dir, base: a.base, environment: environment, values: a.Values, workDir: a.workDir,
	})
}
