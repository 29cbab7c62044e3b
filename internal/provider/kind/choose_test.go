package kind

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// Which engine kind works with, on a machine with a docker whose engine does not answer, and a podman whose does.
func TestTheEngineIsChosen(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"docker": "#!/bin/sh\n[ \"$1\" = -v ] && echo 'Docker version 28.0.1, build 1' && exit\necho 'Cannot connect' >&2\nexit 1\n",
		"podman": "#!/bin/sh\n[ \"$1\" = -v ] && echo 'podman version 5.4.0' && exit\necho '{}'\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	for title, tc := range map[string]struct {
		variable   string
		record     ownership.Management
		kubeconfig bool
		want, says string
		usage      bool
	}{
		"the one that answers":                     {want: "podman"},
		"the one that is named":                    {variable: "docker", want: "docker"},
		"one that is named and is not there":       {variable: "nerdctl", says: "KIND_EXPERIMENTAL_PROVIDER names it"},
		"nonsense":                                 {variable: "dokcer", says: `"dokcer" is no container engine`, usage: true},
		"the one that has the cluster":             {record: ownership.Management{Engine: "docker"}, want: "docker"},
		"the one that has the cluster, not there":  {record: ownership.Management{Engine: "finch"}, says: "it has the management cluster"},
		"another than the one with the cluster":    {record: ownership.Management{Engine: "docker"}, variable: "podman", says: "unset it", usage: true},
		"of an older release's cluster, the first": {record: ownership.Management{UID: "u"}, want: "docker"},
		"of a cluster without a record, the first": {kubeconfig: true, want: "docker"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Setenv(engineVariable, tc.variable)
			files := folder(t)
			tc.record.Provider, tc.record.Name = "kind", "k8s-mgmt"
			if err := (ownership.Record{Cluster: "k8s", Management: &tc.record}).Write(files); err != nil {
				t.Fatal(err)
			}
			if tc.kubeconfig {
				if err := files.Write(platform.ManagementKubeconfig, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			e, err := (&chooser{files: files}).engine(t.Context())
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) || errors.As(err, new(*usage.Error)) != tc.usage {
					t.Errorf("%v, want %q", err, tc.says)
				}
				return
			}
			if err != nil || e.name != tc.want {
				t.Errorf("%q, %v, want %q", e.name, err, tc.want)
			}
		})
	}
}
