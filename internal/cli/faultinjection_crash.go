//go:build crash

package cli

import (
	"github.com/slipway-k8s/slipway/internal/base/crash"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// faultReader is what the crash suite builds: a command that ends itself where effect.CrashVariable says.
func faultReader() func(text string) (func() effect.Faults, error) { return crash.Reader }
