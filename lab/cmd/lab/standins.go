package main

import (
	"context"

	"github.com/slipway-k8s/slipway/lab/caph"
	"github.com/slipway-k8s/slipway/lab/certmanager"
	"github.com/slipway-k8s/slipway/lab/gitea"
	"github.com/slipway-k8s/slipway/lab/giteaserver"
	"github.com/slipway-k8s/slipway/lab/hccm"
	"github.com/slipway-k8s/slipway/lab/talosccm"
)

// standIns are the stand-ins that run in Pods, and what prepares Gitea, by the subcommand that the built-in mapping of
// images names.
var standIns = map[string]func(ctx context.Context, args []string) error{
	"caph":         caph.Run,
	"cert-manager": certmanager.Run,
	"gitea":        gitea.Run,
	"gitea-server": giteaserver.Run,
	"hcloud-ccm":   hccm.Run,
	"talos-ccm":    talosccm.Run,
}
