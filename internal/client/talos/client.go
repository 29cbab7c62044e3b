package talos

import (
	"context"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Client asks Talos nodes, has one of them restore etcd, and wipes, upgrades and configures them.
type Client interface {
	Ask(context.Context, Route) (Node, error)
	// EtcdMembers may be answered by the member of another node, LocalEtcdMembers by the node's own alone.
	EtcdMembers(context.Context, Route) ([]EtcdMember, error)
	LocalEtcdMembers(context.Context, Route) ([]EtcdMember, error)
	EtcdIndex(context.Context, Route) (uint64, error)
	EtcdSnapshot(context.Context, Route) (io.ReadCloser, error)
	HasEtcdData(context.Context, Route) (bool, error)
	HasSnapshot(ctx context.Context, on Route, snapshot io.Reader, size int64) (bool, error)
	UploadSnapshot(ctx context.Context, to Route, snapshot io.Reader) error
	BootstrapRecovered(context.Context, Route) error
	WipeEphemeral(context.Context, Route) error
	Upgrade(ctx context.Context, r Route, installer string) error
	Service(ctx context.Context, r Route, name string) (Service, error)
	MachineConfig(context.Context, Route) (config.Provider, error)
	ApplyMachineConfig(ctx context.Context, r Route, wanted []byte) error
	CheckMachineConfig(ctx context.Context, r Route, wanted []byte) error
}
