package kube

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// getter gives Helm its clients (genericclioptions.RESTClientGetter) without a kubeconfig file or an environment.
type getter struct {
	config    *rest.Config
	namespace string
	discovery discovery.CachedDiscoveryInterface
}

func newGetter(config *rest.Config, namespace string) (*getter, error) {
	bounded := rest.CopyConfig(config)
	bounded.Timeout = discoveryWithin
	d, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return nil, err
	}
	return &getter{config: config, namespace: namespace, discovery: memory.NewMemCacheClient(d)}, nil
}

func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

func (g *getter) ToRESTMapper() (meta.RESTMapper, error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(g.discovery)
	return restmapper.NewShortcutExpander(mapper, g.discovery, nil), nil
}

// ToRawKubeConfigLoader is asked for the namespace only.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: g.namespace},
	})
}
