//go:build !crash

package cli

import "github.com/slipway-k8s/slipway/internal/base/effect"

// faultReader is nil: this command contains no fault injection.
func faultReader() func(text string) (func() effect.Faults, error) { return nil }
