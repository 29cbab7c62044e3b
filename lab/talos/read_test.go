package talos

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
)

// TestRead reads back a snapshot that was uploaded, as a recovery does that wants to know what lies on a server.
func TestRead(t *testing.T) {
	const path = "/var/lib/etcd.snapshot"
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	start(t, x, f.controlPlanes(2)...)
	one, two := f.admin(t, f.private(1)), f.admin(t, f.private(2))
	booted(t, one)
	booted(t, two)
	ctx := t.Context()
	read := func(c *client.Client, ctx context.Context, name string) ([]byte, error) {
		file, err := c.Read(ctx, name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return io.ReadAll(file)
	}
	if _, err := read(two, ctx, path); client.StatusCode(err) != codes.NotFound {
		t.Errorf("before there is one: %v", err)
	}
	snapshot := bytes.Repeat([]byte("a snapshot"), 50_000)
	await(t, patience, "an upload", func() error {
		_, err := two.EtcdRecover(ctx, bytes.NewReader(snapshot))
		return err
	})
	for name, ctx := range map[string]context.Context{"direct": ctx, "by another": client.WithNode(ctx, f.private(2))} {
		c := two
		if name != "direct" {
			c = one
		}
		if got, err := read(c, ctx, path); err != nil || !bytes.Equal(got, snapshot) {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(snapshot), err)
		}
	}
	if _, err := read(two, ctx, "/var/lib"); err == nil {
		t.Error("a folder is read")
	}
	_, err := read(f.client(t, []role.Role{role.Reader}, f.private(2)), ctx, path)
	if client.StatusCode(err) != codes.PermissionDenied {
		t.Errorf("by one who is no os:admin: %v", err)
	}
}
