package settings

import (
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Setting is one value of the configuration, in `bootstrap config show --output json`.
type Setting struct {
	Variable string `json:"variable,omitempty"` // in the environment and as KEY=VALUE
	Field    string `json:"field,omitempty"`    // in bootstrap.yaml
	Value    string `json:"value"`
	Default  string `json:"default"`
	Source   string `json:"source"` // "default", "bootstrap.yaml:3:12", "environment variable LOCATION", "the lab", …
	Unknown  bool   `json:"unknown,omitempty"`
}

// List are the values of the configuration that are no secrets.
func List(cfg Configuration) []Setting {
	var all []Setting
	for _, v := range config.Variables() {
		source := cfg.Place(v.Field)
		if strings.HasPrefix(source, "argument ") { // the place repeats the value
			source = "argument " + v.Name
		}
		all = append(all, Setting{Variable: v.Name, Field: v.Field, Value: kube.WithoutCredentials(v.Get(cfg.Config)),
			Default: v.Default, Source: source})
	}
	return all
}
