package platform

import (
	"bytes"

	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
)

// NamedManagement is a ManagementProvider of a cluster whose kubeconfig the operator named, or that is the one of the
// Pod in which the process runs.
type NamedManagement interface {
	// OwnKubeconfig is that kubeconfig, as it is now. It may run a program, name files and a proxy.
	OwnKubeconfig() ([]byte, error)
}

// OwnKubeconfig is the operator's own kubeconfig of the management cluster; nil where there is none.
func (t Tools) OwnKubeconfig() ([]byte, error) {
	if n, named := t.Management.(NamedManagement); named {
		return n.OwnKubeconfig()
	}
	return nil, nil
}

// accept reports whether a kubeconfig is the operator's own, which may have everything. Any other has to be one that
// kubeconfig.Accept takes.
func (t Tools) accept(data []byte) (own bool, err error) {
	_, refused := kubeconfig.Accept(data)
	if refused == nil {
		return false, nil
	}
	if named, err := t.OwnKubeconfig(); err == nil && named != nil && bytes.Equal(named, data) {
		return true, nil
	}
	return false, refused
}
