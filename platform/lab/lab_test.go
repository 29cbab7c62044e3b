package lab_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/lab"
)

// TestUse: the lab decides addresses and repositories, but for a repository that the program configures.
func TestUse(t *testing.T) {
	f := labtest.NewFakeLab(t)
	cfg := config.Defaults()
	cfg.CiliumRepository = "http://127.0.0.1:1"
	cfg, tools, err := lab.Use(t.Context(), cfg, platform.Tools{Files: platform.FilesIn(filepath.Dir(f.Dir))})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NetworkCIDR != f.Info.NetworkCIDR || cfg.ProviderRepository != f.Info.ProviderRepository ||
		cfg.CAPIVersion != f.Info.Versions["CAPI"] || cfg.CiliumRepository != "http://127.0.0.1:1" {
		t.Errorf("configuration: %+v", cfg)
	}
	own, err := tools.OwnAddress(t.Context())
	if err != nil || !own.IsLoopback() || tools.Token.Reveal() != f.Info.Token || tools.Hetzner == nil ||
		tools.Management.Name() != "lab" {
		t.Errorf("tools: %+v, own address %s, %v", tools, own, err)
	}
	if !slices.Contains(f.Asked, "PUT /v1/images/"+cfg.Image("amd64")) {
		t.Errorf("asked %q; want the image among it", f.Asked)
	}
}

func TestUseWithoutLab(t *testing.T) {
	_, _, err := lab.Use(t.Context(), config.Defaults(), platform.Tools{Files: platform.FilesIn(t.TempDir())})
	if err == nil || !strings.Contains(err.Error(), "no lab is up") {
		t.Errorf("without a lab: %v", err)
	}
}
