// Package ccm runs a cloud controller manager: the command line, serving and controllers of k8s.io/cloud-provider, on
// which the originals of hccm and talosccm are built as well. Unlike theirs, its secure port listens on 127.0.0.1
// unless told otherwise, and there is none for webhooks.
package ccm

import (
	"context"
	"errors"
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	cloudcontrollerconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// newerGates are feature gates that the originals' charts set and that this version of k8s.io/cloud-provider does not
// have.
var newerGates = map[featuregate.Feature]featuregate.FeatureSpec{
	"CloudControllerManagerWatchBasedRoutesReconciliation": {Default: false, PreRelease: featuregate.Alpha},
}

// Controllers are those that a manager offers, by name.
type Controllers map[string]app.ControllerInitFuncConstructor

// NodeControllers are the upstream controllers that initialise Nodes and delete those whose instance does not exist.
func NodeControllers() Controllers {
	return Controllers{
		names.CloudNodeController:          app.DefaultInitFuncConstructors[names.CloudNodeController],
		names.CloudNodeLifecycleController: app.DefaultInitFuncConstructors[names.CloudNodeLifecycleController],
	}
}

// Start makes a controller of a function, which must start its work in the background and return. It gets the manager's
// configuration with its clients and informers; false means that it does nothing.
func Start(start func(
	context.Context, *cloudcontrollerconfig.CompletedConfig,
) (bool, error)) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		Constructor: func(
			_ app.ControllerInitContext, config *cloudcontrollerconfig.CompletedConfig, _ cloudprovider.Interface,
		) app.InitFunc {
			return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
				started, err := start(ctx, config)
				return nil, started, err
			}
		},
	}
}

// NotSimulated is a controller that only logs that it does nothing, and the consequence.
func NotSimulated(name, consequence string) app.ControllerInitFuncConstructor {
	return Start(func(context.Context, *cloudcontrollerconfig.CompletedConfig) (bool, error) {
		klog.Infof("Controller %s is not simulated: %s", name, consequence)
		return false, nil
	})
}

// Run works until ctx ends. cloud may be nil where no controller needs one; provider is its name.
func Run(
	ctx context.Context, args []string, provider string, cloud cloudprovider.Interface, controllers Controllers,
) error {
	gates := utilfeature.DefaultMutableFeatureGate
	for gate, spec := range newerGates {
		if _, known := gates.GetAll()[gate]; known {
			continue
		}
		if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{gate: spec}); err != nil {
			return fmt.Errorf("feature gate %s: %w", gate, err)
		}
	}
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("default options: %w", err)
	}
	o.KubeCloudShared.CloudProvider.Name = provider
	o.SecureServing.BindAddress = standin.Host()
	o.WebhookServing.BindPort = 0 // there are no webhooks, and a certificate for them takes a second to create
	initialize := func(*cloudcontrollerconfig.CompletedConfig) cloudprovider.Interface { return cloud }
	command := app.NewCloudControllerManagerCommand(o, initialize, controllers, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, ctx.Done())
	command.SilenceUsage = true
	command.SilenceErrors = true
	command.SetArgs(args)
	err = command.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) {
		return standin.Stopped(ctx, err)
	}
	return err
}
