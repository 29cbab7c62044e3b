package platform

import (
	"bytes"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// NamedManagement is a ManagementProvider of a cluster whose kubeconfig the operator named, or that is the one of the
// Pod in which the process runs.
type NamedManagement interface {
	// OwnKubeconfig is that kubeconfig, as it is now. It may run a program, name files and a proxy.
	OwnKubeconfig() ([]byte, error)
}

// own is the operator's own kubeconfig of the management cluster; nil where there is none.
func (t Tools) own() ([]byte, error) {
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
	if named, err := t.own(); err == nil && named != nil && bytes.Equal(named, data) {
		return true, nil
	}
	return false, refused
}

// ConnectManagement opens the management cluster by a kubeconfig of its provider, or by the copy of it in the state
// folder, which may come from a store. A copy that only the operator's own kubeconfig could be like, because it runs a
// program, say, is used only as far as it is that: otherwise the operator's own is used in its place, as the next run
// would write it.
func (t Tools) ConnectManagement(data []byte) (*kube.Cluster, error) {
	cluster, err := t.Connect(data)
	if err == nil || !kubeconfig.Refused(err) {
		return cluster, err
	}
	named, ownErr := t.own()
	switch {
	case ownErr != nil:
		return nil, fmt.Errorf("%w; only the operator's own kubeconfig of the management cluster may have that: %w", err, ownErr)
	case named == nil:
		return nil, err
	}
	if t.connectTrusted == nil { // without WithDefaults
		return kube.ConnectTrusted(named)
	}
	return t.connectTrusted(named)
}
