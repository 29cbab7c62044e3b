package kube_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// silentAPI accepts connections and never answers, as a stopped API server does.
func silentAPI(t *testing.T) *kube.Cluster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	config := clientcmdapi.NewConfig()
	config.Clusters["silent"] = &clientcmdapi.Cluster{Server: "http://" + l.Addr().String()}
	config.Contexts["silent"] = &clientcmdapi.Context{Cluster: "silent"}
	config.CurrentContext = "silent"
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.ConnectTrusted(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Nobody waits for a silent API server longer than the context says, whatever is asked of it first.
func TestSilentAPIEndsWithTheContext(t *testing.T) {
	named := client.ObjectKey{Namespace: "default", Name: "one"}
	secret := func() *corev1.Secret {
		s := &corev1.Secret{}
		s.Namespace, s.Name = named.Namespace, named.Name
		return s
	}
	for what, ask := range map[string]func(context.Context, *kube.Cluster) error{
		"get":  func(ctx context.Context, c *kube.Cluster) error { return c.Get(ctx, named, secret()) },
		"list": func(ctx context.Context, c *kube.Cluster) error { return c.List(ctx, &corev1.SecretList{}) },
		"get of a kind of others": func(ctx context.Context, c *kube.Cluster) error {
			o := &unstructured.Unstructured{}
			o.SetAPIVersion("example.com/v1")
			o.SetKind("Widget")
			return c.Get(ctx, named, o)
		},
		"identity": func(ctx context.Context, c *kube.Cluster) error { _, err := c.UID(ctx); return err },
		"create":   func(ctx context.Context, c *kube.Cluster) error { return c.Create(ctx, secret()) },
		"update":   func(ctx context.Context, c *kube.Cluster) error { return c.Update(ctx, secret()) },
		"patch": func(ctx context.Context, c *kube.Cluster) error {
			return c.Patch(ctx, secret(), client.RawPatch("application/merge-patch+json", []byte("{}")))
		},
		"delete": func(ctx context.Context, c *kube.Cluster) error { return c.Delete(ctx, secret()) },
		"watch": func(ctx context.Context, c *kube.Cluster) error {
			w, err := c.Watch(ctx, &corev1.SecretList{})
			if err == nil {
				w.Stop()
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := silentAPI(t)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- ask(ctx, c) }()
			select {
			case err := <-ended:
				if !errors.Is(err, context.DeadlineExceeded) || kube.Absent(err) || !strings.HasSuffix(err.Error(), c.Host()+
					" did not answer in time") {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("it did not end with its context")
			}
		})
	}
}
