package kind

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// usedAnswerWithin bounds the question to an API server on this machine.
const usedAnswerWithin = 15 * time.Second

// NewProvider is who makes the management cluster outside the lab.
func NewProvider(cfg config.Config, files platform.Files, yes bool, log io.Writer,
	effects *effect.Recorder) platform.ManagementProvider {
	if cfg.ManagementProvider() == config.ManagementExisting {
		if cfg.ManagementKubeconfig == "" {
			return around()
		}
		return behind(cfg.ManagementKubeconfig)
	}
	return &Provider{kind: dockerKind{log: log, engines: &chooser{files: files}}, image: cfg.KindNodeImage,
		used: usedByClusterAPI, files: files, yes: yes, effects: effects}
}

// answers asks the API server behind a kubeconfig whether it is ready.
func answers(ctx context.Context, kubeconfig []byte) error {
	cluster, err := kube.ConnectTrusted(kubeconfig)
	if err != nil {
		return err
	}
	return cluster.Ready(ctx)
}

// usedByClusterAPI looks for the kind Cluster: without it no cluster can hold
// such an object, in any namespace.
func usedByClusterAPI(ctx context.Context, kubeconfig []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, usedAnswerWithin)
	defer cancel()
	cluster, err := kube.ConnectTrusted(kubeconfig)
	if err != nil {
		return false, err
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"})
	switch err := cluster.Get(ctx, client.ObjectKey{Name: "clusters." + capi.ClusterKind.Group}, crd); {
	case apierrors.IsNotFound(err): // no other error is an answer of no
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for Cluster API in %s: %w", cluster.Host(), err)
	}
	return true, nil
}
