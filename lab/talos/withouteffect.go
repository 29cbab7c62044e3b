package talos

//lint:file-ignore SA1019 Talos reads the fields, and configurations have them, next to the documents that follow them

import "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

// documentsWithoutEffect are the kinds of documents that Talos changes without a reboot, and that change nothing of a
// simulated server.
var documentsWithoutEffect = []string{"KmsgLogConfig", "NetworkDefaultActionConfig", "NetworkRuleConfig",
	"RegistryMirrorConfig", "RegistryTLSConfig", "ResolverConfig", "StaticHostConfig", "TimeSyncConfig",
	"TrustedRootsConfig"}

// withoutEffect removes the fields that Talos changes without a reboot, and that change nothing of a simulated server:
// it has no kernel, no clock and no network of its own, and pulls no images.
func withoutEffect(m *v1alpha1.MachineConfig) {
	if network := m.MachineNetwork; network != nil {
		network.NameServers, network.ExtraHostEntries = nil, nil
	} else {
		m.MachineNetwork = &v1alpha1.NetworkConfig{} // as one that had these alone
	}
	m.MachineKernel, m.MachineLogging, m.MachineTime = nil, nil, nil
	m.MachineRegistries, m.MachineSysctls, m.MachineSysfs = v1alpha1.RegistriesConfig{}, nil, nil
}
