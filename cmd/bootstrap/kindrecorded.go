package main

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
)

// recordedKind is kind with its changes written down.
type recordedKind struct {
	kindLibrary
	effects *effect.Recorder
}

func (k recordedKind) create(name, image, kubeconfigPath string, say flow.Say) error {
	return k.effects.Do(context.Background(), effect.Kind, "create", "clusters/"+name, func() error {
		return k.kindLibrary.create(name, image, kubeconfigPath, say)
	})
}

func (k recordedKind) remove(name, kubeconfigPath string) error {
	return k.effects.Do(context.Background(), effect.Kind, "delete", "clusters/"+name, func() error {
		return k.kindLibrary.remove(name, kubeconfigPath)
	})
}
