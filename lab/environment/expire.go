package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/pki"
)

// expiredFor is how long ago the certificate of an expired-kubeconfig fault expired: more than any clock skew.
const expiredFor = time.Hour

// expireKubeconfig replaces a kubeconfig's client certificate with an expired one. The cluster's kube-apiserver refuses
// it.
func (lab *Lab) expireKubeconfig(f *Fault) (effect, error) {
	if !filepath.IsAbs(f.File) {
		return effect{}, control.BadRequest(fmt.Errorf("file %q: give an absolute path", f.File))
	}
	ca, err := lab.authority(f.Cluster)
	if err != nil {
		return effect{}, err
	}
	valid, err := os.ReadFile(f.File)
	if err != nil {
		return effect{}, control.BadRequest(fmt.Errorf("the kubeconfig: %w", err))
	}
	expired, err := expire(valid, ca)
	if err != nil {
		return effect{}, control.BadRequest(fmt.Errorf("the kubeconfig %s: %w", f.File, err))
	}
	if err := pki.WriteFile(f.File, expired); err != nil {
		return effect{}, err
	}
	undo := func() {
		now, err := os.ReadFile(f.File)
		if err == nil && bytes.Equal(now, expired) {
			err = pki.WriteFile(f.File, valid)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			lab.cfg.Log.Error("a kubeconfig was not restored", "file", f.File, "reason", err)
		}
	}
	return effect{undo: undo}, nil
}

// authority returns the certificate authority that signs client certificates of a cluster.
func (lab *Lab) authority(cluster string) (*pki.CA, error) {
	if m := lab.managements.Find(cluster); m != nil && m.Ready() {
		return m.Plane().CA(), nil
	}
	for _, t := range lab.talos.Status() {
		if p := lab.talos.Plane(t.ID); p != nil && t.Cluster == cluster {
			return p.CA(), nil
		}
	}
	return nil, control.BadRequest(fmt.Errorf("no kube-apiserver of cluster %q is ready: see lab status", cluster))
}

// expire returns the kubeconfig with an expired certificate for the user of the current context.
func expire(kubeconfig []byte, ca *pki.CA) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, fmt.Errorf("its current context %q names no user", config.CurrentContext)
	}
	user := config.AuthInfos[context.AuthInfo]
	if len(user.ClientCertificateData) == 0 {
		return nil, fmt.Errorf("user %s has no certificate in it", context.AuthInfo)
	}
	user.ClientCertificateData, err = ca.Reissue(user.ClientCertificateData, time.Now().Add(-expiredFor))
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}
