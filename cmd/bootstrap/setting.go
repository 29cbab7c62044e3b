package main

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/steps"
)

// setting is one value of the configuration, in `bootstrap config show --output json`.
type setting struct {
	Variable string `json:"variable,omitempty"` // in the environment and as KEY=VALUE
	Field    string `json:"field,omitempty"`    // in bootstrap.yaml
	Value    string `json:"value"`
	Default  string `json:"default"`
	Source   string `json:"source"` // "default", "bootstrap.yaml:3:12", "environment variable LOCATION", "the lab", …
	Unknown  bool   `json:"unknown,omitempty"`
}

// settingsOf are the values of the configuration that are no secrets.
func settingsOf(cfg configuration) []setting {
	var all []setting
	for _, v := range steps.Variables() {
		source := cfg.place(v.Field)
		if strings.HasPrefix(source, "argument ") { // the place repeats the value
			source = "argument " + v.Name
		}
		all = append(all, setting{Variable: v.Name, Field: v.Field, Value: kube.WithoutCredentials(v.Get(cfg.Config)), Default: v.Default, Source: source})
	}
	return all
}
