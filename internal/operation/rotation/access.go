package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/platform"
)

// writeAccess gives the files in the state folder certificates of the new authorities, and has them trust both: they
// open the cluster at any moment of the rest of the rotation.
func (in inputs) writeAccess(ctx context.Context, say flow.Say, made Made) (Made, error) {
	_, a, err := in.opened(ctx, say, made)
	if err != nil {
		return Made{}, err
	}
	return a.made(), in.writeFiles(a, a.talos.both(), a.kubernetes.both())
}

// writeFiles writes talosconfig and kubeconfig with new client certificates and the authorities that they trust.
func (in inputs) writeFiles(a authorities, talosTrust, kubernetesTrust []byte) error {
	for _, file := range []struct {
		name string
		new  func([]byte) ([]byte, error)
	}{
		{platform.Talosconfig, func(is []byte) ([]byte, error) {
			return talosconfigWith(is, talosTrust, a.talos.newClient)
		}},
		{platform.Kubeconfig, func(is []byte) ([]byte, error) {
			return kubeconfigWith(is, kubernetesTrust, a.kubernetes.newClient)
		}},
	} {
		is, err := in.tools.Files.Read(file.name)
		if err != nil {
			return fmt.Errorf("read %s: %w", file.name, err)
		}
		wanted, err := file.new(is)
		if err != nil {
			return fmt.Errorf("%s: %w", in.tools.Files.Path(file.name), err)
		}
		if err := in.tools.Files.Write(file.name, wanted); err != nil {
			return err
		}
	}
	return in.writeManagement(a, kubernetesTrust)
}

// writeManagement does so with the kubeconfig of the cluster that has the Cluster API objects, where that is the
// cluster itself, as after an adoption.
func (in inputs) writeManagement(a authorities, trust []byte) error {
	is, err := in.tools.Files.Read(platform.ManagementKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !bytes.Contains(trustOf(is), bytes.TrimSpace(a.kubernetes.old)) {
		return nil
	}
	wanted, err := kubeconfigWith(is, trust, a.kubernetes.newClient)
	if err != nil {
		return fmt.Errorf("%s: %w", in.tools.Files.Path(platform.ManagementKubeconfig), err)
	}
	return in.tools.Files.Write(platform.ManagementKubeconfig, wanted)
}

// talosconfigWith is a talosconfig that trusts other authorities, and shows another client certificate.
func talosconfigWith(is, trust []byte, certificate pair) ([]byte, error) {
	credentials, err := talos.Parse(is)
	if err != nil {
		return nil, err
	}
	return credentials.With(trust, certificate.Crt, certificate.Key).Bytes()
}

// kubeconfigWith is a kubeconfig whose present context trusts other authorities, and shows another client certificate
// where it has one. A token is not of an authority and stays.
func kubeconfigWith(is, trust []byte, certificate pair) ([]byte, error) {
	config, err := clientcmd.Load(is)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig") // not the error itself, which may quote a key
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.Clusters[context.Cluster] == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("its current context has no cluster or no user")
	}
	config.Clusters[context.Cluster].CertificateAuthorityData = trust
	if user := config.AuthInfos[context.AuthInfo]; len(user.ClientCertificateData) > 0 {
		user.ClientCertificateData, user.ClientKeyData = certificate.Crt, certificate.Key
	}
	return clientcmd.Write(*config)
}

// trustOf are the authorities that a kubeconfig's present context trusts; nil: it has none.
func trustOf(kubeconfig []byte) []byte {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	if context := config.Contexts[config.CurrentContext]; context != nil && config.Clusters[context.Cluster] != nil {
		return config.Clusters[context.Cluster].CertificateAuthorityData
	}
	return nil
}
