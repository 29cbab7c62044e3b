package situation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// DeleteLeft deletes a Machine whose member of etcd has left and that is one too many, where the operator agreed
// beforehand: its provider, CACPPT before v0.5.13, waits for the member and would not delete it. The other members are
// asked first: they do not count it any more, and have their quorum. It returns what it did.
func DeleteLeft(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt *kube.Cluster, c Watched,
	s why.Situation) (did string, err error) {
	if !tools.Consent || !s.Surplus() {
		return "", nil
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		if !s.Left(m.GetName()) {
			continue
		}
		now, err := capi.Get(ctx, mgmt, c.Namespace, capi.MachineKind, m.GetName())
		switch {
		case kube.Absent(err):
			continue
		case err != nil:
			return "", err
		case now.GetUID() != m.GetUID() || now.GetDeletionTimestamp() != nil:
			continue
		}
		server := capi.Text(now, "spec", "infrastructureRef", "name")
		etcd, err := etcdview.Ask(ctx, cfg, tools, mgmt, m.GetName())
		if err != nil {
			return "", err
		}
		needs := etcd.Needs(server)
		if needs != "" || slices.ContainsFunc(etcd.Members, func(e talos.EtcdMember) bool { return e.Name == server }) {
			continue
		}
		if err := capi.DeleteMachine(ctx, mgmt, now); err != nil {
			return "", err
		}
		return fmt.Sprintf("deleted Machine %s, as agreed: its member of etcd has left, and the control plane provider "+
			"(before v0.5.13) waits for it and would not delete the Machine; %s serve etcd", m.GetName(),
			strings.Join(etcd.Healthy(), ", ")), nil
	}
	return "", nil
}
