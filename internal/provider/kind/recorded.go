package kind

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// recorded is kind with its changes written down.
type recorded struct {
	kindLibrary
	effects *effect.Recorder
}

func (k recorded) create(name, image, kubeconfigPath, identity string, say flow.Say) error {
	return k.effects.Do(context.Background(), effect.Kind, "create", "clusters/"+name, func() error {
		return k.kindLibrary.create(name, image, kubeconfigPath, identity, say)
	})
}

func (k recorded) remove(name, kubeconfigPath string) error {
	return k.effects.Do(context.Background(), effect.Kind, "delete", "clusters/"+name, func() error {
		return k.kindLibrary.remove(name, kubeconfigPath)
	})
}
