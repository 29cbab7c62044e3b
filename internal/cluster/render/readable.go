package render

import (
	"github.com/slipway-k8s/slipway/config"
)

// ReadOrEmpty are the operator's files where they can be read, and none where one is broken.
func ReadOrEmpty(cfg config.Config, overrides string) Sources {
	s, err := Read(VariablesOf(cfg), overrides)
	if err != nil {
		return Sources{Vars: VariablesOf(cfg)}
	}
	return s
}
