package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"

	"github.com/slipway-k8s/slipway/internal/runs"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/statedir"
)

// keepSetup writes down what the run begins with. The lab's part of the configuration is known only once it is up: then it is
// written again. Nothing hangs on it but a report.
func (r *running) keepSetup() {
	s := runs.Setup{
		Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		World: r.world(), Cluster: r.cfg.ClusterName, Targets: r.asked, Settings: settings.List(r.cfg),
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(r.state.Path(filepath.Join(statedir.RunsFolder, r.id, runs.SetupFile)), []byte(r.hide.Text(string(data))), 0o600)
	}
	if err != nil {
		r.hub.Note("a report of this run will not tell its configuration: %v", err)
	}
}
