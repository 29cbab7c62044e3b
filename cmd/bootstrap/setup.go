package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
)

// keepSetup writes down what the run begins with. The lab's part of the configuration is known only once it is up: then it is
// written again. Nothing hangs on it but a report.
func (r *running) keepSetup() {
	s := setup{
		Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		World: r.world(), Cluster: r.cfg.ClusterName, Targets: r.asked, Settings: settingsOf(r.cfg),
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(r.state.path(filepath.Join(runsFolder, r.id, setupFile)), []byte(r.hide.text(string(data))), 0o600)
	}
	if err != nil {
		r.hub.note("a report of this run will not tell its configuration: %v", err)
	}
}
