package machineconfig

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

func configOf(t *testing.T, text string) config.Provider {
	t.Helper()
	c, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Fields that do not reach a running server are known.
func TestFieldsNotInPlace(t *testing.T) {
	const before = "version: v1alpha1\nmachine: {}\ncluster: {}\n"
	for text, want := range map[string]bool{
		"version: v1alpha1\nmachine:\n  sysctls:\n    a: \"1\"\ncluster: {}\n":               true,
		"version: v1alpha1\nmachine:\n  kubelet:\n    clusterDNS: [10.0.0.1]\ncluster: {}\n": true,
		"version: v1alpha1\nmachine:\n  install:\n    disk: /dev/sda\ncluster: {}\n":         false,
		"version: v1alpha1\nmachine:\n  network:\n    hostname: x\ncluster: {}\n":            false,
		"version: v1alpha1\nmachine: {}\ncluster:\n  etcd:\n    extraArgs:\n      a: b\n":    false,
		before + "---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/x\n":    false,
	} {
		fields, err := Differences(configOf(t, before), configOf(t, text))
		if err != nil || len(fields) != 1 || fields[0].InPlace() != want {
			t.Errorf("%q: %v, want %v; %v", text, fields, want, err)
		}
	}
	if (Field{Path: []string{"machine", "sysctlsOfMine"}}).InPlace() {
		t.Error("a name that only begins with one that is known counts")
	}
}
