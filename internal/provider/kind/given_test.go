package kind

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// An existing management cluster without a kubeconfig is the one around the Pod; outside of one it cannot be opened.
func TestProviderOfAnExistingManagementCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	cfg := config.Defaults()
	cfg.Management = config.ManagementExisting
	provider := NewProvider(cfg, platform.FilesIn(t.TempDir()), false, nil, nil)
	_, err := provider.Ensure(t.Context(), "k8s-mgmt", quiet)
	if err == nil || !strings.Contains(err.Error(), "MANAGEMENT_KUBECONFIG") || !strings.Contains(err.Error(), "Pod") {
		t.Errorf("outside of a Pod: %v", err)
	}
	if err := CheckPod(); !errors.As(err, new(*usage.Error)) {
		t.Errorf("outside of a Pod: %v", err)
	}
	if !(platform.Tools{Management: provider}).ManagementGiven() {
		t.Error("it counts as one that Slipway created")
	}
	cfg.Management = config.ManagementKind
	made := NewProvider(cfg, platform.FilesIn(t.TempDir()), false, nil, nil)
	if (platform.Tools{Management: made}).ManagementGiven() {
		t.Error("kind's counts as given")
	}
}
