package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// leavePause is the time between two tries to leave: others must be connected to each other first.
	leavePause = 500 * time.Millisecond
	// snapshotChunk is the size in bytes of the messages that a snapshot is sent in.
	snapshotChunk = 64 << 10
)

// Bootstrap has etcd found a cluster, or restore one from the snapshot that was uploaded.
func (m *machined) Bootstrap(_ context.Context, request *machine.BootstrapRequest) (*machine.BootstrapResponse, error) {
	if !m.system.runtimeUp.Load() {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := m.controlPlane("bootstrap"); err != nil {
		return nil, err
	}
	if err := m.system.etcd.requestBootstrap(request); err != nil {
		return nil, err
	}
	m.system.log.Info("etcd is bootstrapped", "from snapshot", request.RecoverEtcd)
	return &machine.BootstrapResponse{Messages: []*machine.Bootstrap{{}}}, nil
}

// ask runs a request with the members at urls, this server's own included or not.
func (m *machined) ask(ctx context.Context, urls []string, question func(
	context.Context, *clientv3.Client,
) error) error {
	if len(urls) == 0 {
		state, message := m.system.services.get(serviceEtcd)
		return status.Errorf(codes.Unavailable, "etcd does not serve: service %s is %s: %s", serviceEtcd, state, message)
	}
	return m.askAnyway(clientv3.WithRequireLeader(ctx), urls, question)
}

// askAnyway does so where no member has a leader, too.
func (m *machined) askAnyway(ctx context.Context, urls []string, question func(
	context.Context, *clientv3.Client,
) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*etcdTimeout)
	defer cancel()
	return m.system.etcd.with(ctx, urls, func(c *clientv3.Client) error { return question(ctx, c) })
}

// local is the URL of this server's member, empty while it does not serve.
func (m *machined) local() []string {
	if own, _ := m.system.etcd.url.get(); own != "" {
		return []string{own}
	}
	return nil
}

// memberID returns the id of this server's member.
func (m *machined) memberID(ctx context.Context) (id uint64, err error) {
	err = m.ask(ctx, m.local(), func(ctx context.Context, c *clientv3.Client) error {
		st, err := c.Status(ctx, m.local()[0])
		if err == nil {
			id = st.Header.MemberId
		}
		return err
	})
	return id, err
}

// EtcdMemberList lists the cluster's members.
func (m *machined) EtcdMemberList(
	ctx context.Context, request *machine.EtcdMemberListRequest,
) (*machine.EtcdMemberListResponse, error) {
	if err := m.controlPlane("member list"); err != nil {
		return nil, err
	}
	urls := m.system.etcd.members()
	if request.QueryLocal {
		urls = m.local()
	}
	members := &machine.EtcdMembers{}
	err := m.ask(ctx, urls, func(ctx context.Context, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, x := range list.Members {
			members.LegacyMembers = append(members.LegacyMembers, x.Name)
			members.Members = append(members.Members, &machine.EtcdMember{
				Id: x.ID, Hostname: x.Name, PeerUrls: x.PeerURLs, ClientUrls: x.ClientURLs, IsLearner: x.IsLearner,
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machine.EtcdMemberListResponse{Messages: []*machine.EtcdMembers{members}}, nil
}

// EtcdStatus returns the status of this server's member, also of one without a leader.
func (m *machined) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	if err := m.controlPlane("etcd status"); err != nil {
		return nil, err
	}
	if len(m.local()) == 0 {
		return nil, m.ask(ctx, nil, nil) // says why
	}
	var member *machine.EtcdMemberStatus
	err := m.askAnyway(ctx, m.local(), func(ctx context.Context, c *clientv3.Client) error {
		st, err := c.Status(ctx, c.Endpoints()[0])
		if err != nil {
			return err
		}
		member = &machine.EtcdMemberStatus{
			MemberId: st.Header.MemberId, ProtocolVersion: st.Version, StorageVersion: storageVersion(st.Version),
			DbSize: st.DbSize, DbSizeInUse: st.DbSizeInUse, Leader: st.Leader, IsLearner: st.IsLearner, Errors: st.Errors,
			RaftIndex: st.RaftIndex, RaftTerm: st.RaftTerm, RaftAppliedIndex: st.RaftAppliedIndex,
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machine.EtcdStatusResponse{Messages: []*machine.EtcdStatus{{MemberStatus: member}}}, nil
}

// storageVersion is the version of the data of an etcd before 3.6, which does not
// tell it: its own minor version's first.
func storageVersion(etcd string) string {
	var major, minor int
	if _, err := fmt.Sscanf(etcd, "%d.%d", &major, &minor); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.0", major, minor)
}

// EtcdForfeitLeadership moves the leadership to another member if this server's member is the leader.
func (m *machined) EtcdForfeitLeadership(
	ctx context.Context, _ *machine.EtcdForfeitLeadershipRequest,
) (*machine.EtcdForfeitLeadershipResponse, error) {
	if err := m.controlPlane("etcd forfeit leadership"); err != nil {
		return nil, err
	}
	moved := &machine.EtcdForfeitLeadership{}
	err := m.ask(ctx, m.local(), func(ctx context.Context, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		if len(list.Members) == 1 {
			return errors.New("cannot forfeit leadership, only one member")
		}
		st, err := c.Status(ctx, c.Endpoints()[0])
		if err != nil || st.Leader != st.Header.MemberId {
			return err
		}
		for _, x := range list.Members {
			if x.ID == st.Leader || x.IsLearner || x.Name == "" {
				continue
			}
			_, err := c.MoveLeader(ctx, x.ID)
			if errors.Is(err, rpctypes.ErrNotLeader) {
				return nil
			}
			moved.Member = x.Name
			return err
		}
		return errors.New("cannot forfeit leadership: no other full member has started")
	})
	if err != nil {
		return nil, fmt.Errorf("failed to forfeit leadership: %w", err)
	}
	return &machine.EtcdForfeitLeadershipResponse{Messages: []*machine.EtcdForfeitLeadership{moved}}, nil
}

// EtcdLeaveCluster takes this server's member out of the cluster, stops it and removes its data.
func (m *machined) EtcdLeaveCluster(
	ctx context.Context, _ *machine.EtcdLeaveClusterRequest,
) (*machine.EtcdLeaveClusterResponse, error) {
	if err := m.controlPlane("etcd leave"); err != nil {
		return nil, err
	}
	if err := m.leave(ctx); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}
	return &machine.EtcdLeaveClusterResponse{Messages: []*machine.EtcdLeaveCluster{{}}}, nil
}

func (m *machined) leave(ctx context.Context) error {
	id, err := m.memberID(ctx)
	if err != nil {
		return err
	}
	for {
		err := m.remove(ctx, id)
		switch {
		case err == nil || errors.Is(err, rpctypes.ErrMemberNotFound):
			return m.system.etcd.leave()
		case !errors.Is(err, rpctypes.ErrUnhealthy) && !errors.Is(err, rpctypes.ErrStopped):
			return err
		}
		if !sleep(ctx, leavePause) {
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		}
	}
}

func (m *machined) remove(ctx context.Context, id uint64) error {
	return m.ask(ctx, m.system.etcd.members(), func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberRemove(ctx, id)
		return err
	})
}

// EtcdRemoveMemberByID takes any member out of the cluster.
func (m *machined) EtcdRemoveMemberByID(
	ctx context.Context, request *machine.EtcdRemoveMemberByIDRequest,
) (*machine.EtcdRemoveMemberByIDResponse, error) {
	if err := m.controlPlane("etcd remove member"); err != nil {
		return nil, err
	}
	err := m.remove(ctx, request.MemberId)
	switch {
	case errors.Is(err, rpctypes.ErrMemberNotFound):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, fmt.Errorf("failed to remove member: %w", err)
	}
	return &machine.EtcdRemoveMemberByIDResponse{Messages: []*machine.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdSnapshot sends a snapshot of this server's member as etcd writes it: the database, then its SHA-256.
func (m *machined) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if err := m.controlPlane("etcd snapshot"); err != nil {
		return err
	}
	ctx := stream.Context()
	if len(m.local()) == 0 {
		return m.ask(ctx, nil, nil) // says why
	}
	return m.system.etcd.with(ctx, m.local(), func(c *clientv3.Client) error {
		snapshot, err := c.Snapshot(ctx)
		if err != nil {
			return fmt.Errorf("failed reading etcd snapshot: %w", err)
		}
		defer snapshot.Close()
		buffer := make([]byte, snapshotChunk)
		for {
			n, err := io.ReadFull(snapshot, buffer)
			if n > 0 {
				if err := stream.Send(&common.Data{Metadata: &common.Metadata{}, Bytes: buffer[:n]}); err != nil {
					return err
				}
			}
			switch {
			case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
				return nil
			case err != nil:
				return fmt.Errorf("failed reading etcd snapshot: %w", err)
			}
		}
	})
}

// EtcdRecover takes a snapshot for a Bootstrap that is to restore it.
func (m *machined) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	if err := m.controlPlane("etcd recover"); err != nil {
		return err
	}
	if !m.system.runtimeUp.Load() {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	target := m.system.etcd.snapshotFile()
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}
	// Into another file first, so that a Bootstrap never finds a part of one.
	upload, err := os.CreateTemp(filepath.Dir(target), ".etcd.snapshot-*")
	if err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}
	defer os.Remove(upload.Name()) // does not exist after the rename
	defer upload.Close()
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if _, err := upload.Write(data.Bytes); err != nil {
			return fmt.Errorf("error writing snapshot: %w", err)
		}
	}
	if err := upload.Close(); err != nil {
		return fmt.Errorf("error closing snapshot: %w", err)
	}
	if err := os.Rename(upload.Name(), target); err != nil {
		return fmt.Errorf("error keeping snapshot: %w", err)
	}
	return stream.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
}
