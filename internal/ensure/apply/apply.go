// Package apply writes single objects of the management cluster and of the workload cluster: it applies objects,
// Secrets and the namespace, and removes nodes whose servers do not exist. It waits while the API server or its
// webhooks do not answer. It also creates, compares and removes the copies of a cluster's objects in another cluster.
package apply

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Objects applies objects, waiting while the API server or the providers' webhooks do not answer: for all
// objects together no longer than patience, from which it subtracts the time that it took.
func Objects(ctx context.Context, cfg config.Config, say flow.Say, mgmt *kube.Cluster,
	objects []*unstructured.Unstructured, patience *time.Duration) error {
	began, had := time.Now(), *patience
	for _, o := range objects {
		say("applying %s", kube.Describe(o))
		changes.MarkOwned(o, cfg.ClusterName)
		err := wait.Wait{What: "the API server and its webhooks to take " + kube.Describe(o), Within: *patience}.Until(ctx,
			say, func(ctx context.Context) (string, error) {
				err := mgmt.Apply(ctx, o)
				if err != nil && !kube.Unwell(err) {
					return "", wait.Final(err)
				}
				return "", err
			})
		if err != nil {
			return err
		}
		*patience = max(0, had-time.Since(began)).Truncate(time.Millisecond)
	}
	return nil
}

// Secret writes a Secret and gives its UID.
func Secret(ctx context.Context, say flow.Say, c *kube.Cluster, secret *corev1.Secret) (string, error) {
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return "", fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	o := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	if err := Object(ctx, say, c, o); err != nil {
		return "", err
	}
	return string(o.GetUID()), nil
}

// Object applies an object, waiting while the API server is silent or unwell. Afterwards o is what the server has, with
// its UID.
func Object(ctx context.Context, say flow.Say, c *kube.Cluster, o *unstructured.Unstructured) error {
	return wait.Wait{What: "the API server to take " + kube.Describe(o), Within: wait.TakenWithin}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			err := c.Apply(ctx, o)
			if err != nil && !kube.Unwell(err) {
				return "", wait.Final(err)
			}
			return "", err
		})
}

// Change changes an object, waiting while the API server or its webhooks do not answer, and again where a controller
// has changed it in between. what is what they are to take.
func Change(ctx context.Context, cfg config.Config, say flow.Say, what string,
	change func(context.Context) (missing string, err error)) error {
	return wait.Wait{What: "the API server and its webhooks to take " + what,
		Within: cfg.LoadBalancerTimeout.D()}.Until(ctx, say, func(ctx context.Context) (string, error) {
		missing, err := change(ctx)
		if err != nil && !kube.Unwell(err) && !apierrors.IsConflict(err) {
			return "", wait.Final(err)
		}
		return missing, err
	})
}
