package test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/backup"
)

// backUp writes a backup of the cluster as it is now.
func (l *lostCluster) backUp(t *testing.T) {
	t.Helper()
	ctx, c := t.Context(), l.cluster(t)
	spaces := &corev1.NamespaceList{}
	if err := c.List(ctx, spaces, client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(spaces.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	contents := backup.Contents{Header: backup.Header{
		Cluster: "k8s", UID: l.uid, Taken: time.Now().UTC(), SelfManaged: true, Etcd: backup.Etcd{Revision: revision},
	}}
	inv := side(t, l.command, "kubeconfig")
	for _, o := range inv.All() {
		if o.GetKind() == "Secret" {
			contents.Secrets = append(contents.Secrets, o)
		} else {
			contents.Objects = append(contents.Objects, o)
		}
	}
	credentials, err := talosclient.New(ctx, talosclient.WithConfigFromFile(filepath.Join(l.state, "talosconfig")))
	if err != nil {
		t.Fatal(err)
	}
	defer credentials.Close()
	node := talosclient.WithNode(ctx, credentials.GetConfigContext().Nodes[0])
	snapshot, err := credentials.EtcdSnapshot(node, &machine.EtcdSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	l.file = filepath.Join(t.TempDir(), "k8s.slipway")
	file, err := os.Create(l.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := backup.Write(file, backup.Seal{Unencrypted: true}, contents, snapshot); err != nil {
		t.Fatal(err)
	}
}
