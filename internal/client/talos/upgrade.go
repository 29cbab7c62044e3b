package talos

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/client"
)

// Upgrade has a node install the Talos of an installer image beside the one that it runs, and reboot into it. Talos
// drains the node first, and keeps what is on its disk. It refuses while a member of etcd does not serve, and boots the
// old Talos again where the new one does not start. The call returns when the node has accepted it.
func (c *Credentials) Upgrade(ctx context.Context, r Route, installer string) error {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := t.UpgradeWithOptions(ctx, client.WithUpgradeImage(installer),
		client.WithUpgradePreserve(true)); err != nil {
		return plain("upgrade "+r.String()+" to "+installer, err)
	}
	return nil
}
