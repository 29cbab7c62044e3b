package talos

import (
	"context"
	"io"
)

// Client asks Talos nodes, has one of them restore etcd, wipes and upgrades them.
type Client interface {
	Ask(ctx context.Context, address string) (Node, error)
	AskBy(context.Context, Route) (Node, error)
	EtcdMembers(ctx context.Context, address string) ([]EtcdMember, error)
	EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error)
	EtcdMembersOf(context.Context, Route) ([]EtcdMember, error)
	EtcdIndex(context.Context, Route) (uint64, error)
	EtcdSnapshotBy(context.Context, Route) (io.ReadCloser, error)
	HasEtcdData(context.Context, Route) (bool, error)
	HasSnapshot(ctx context.Context, on Route, snapshot io.Reader, size int64) (bool, error)
	UploadSnapshot(ctx context.Context, to Route, snapshot io.Reader) error
	BootstrapRecovered(context.Context, Route) error
	WipeEphemeral(context.Context, Route) error
	Upgrade(ctx context.Context, r Route, installer string) error
}
