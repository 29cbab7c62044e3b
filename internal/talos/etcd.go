package talos

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// EtcdMember is a member of the cluster's etcd, as etcd itself lists it.
type EtcdMember struct {
	ID      uint64
	Name    string // of its node
	Learner bool   // does not vote yet
}

// EtcdMembers lists etcd's members, by name, as the node at an address knows them.
func (c *Credentials) EtcdMembers(ctx context.Context, address string) ([]EtcdMember, error) {
	return c.EtcdMembersBy(ctx, Route{Endpoint: address})
}

// EtcdMembersBy does so by a route.
func (c *Credentials) EtcdMembersBy(ctx context.Context, r Route) ([]EtcdMember, error) {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	list, err := t.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
	if err != nil {
		return nil, plain("list etcd's members through "+r.String(), err)
	}
	var members []EtcdMember
	for _, m := range list.GetMessages() {
		for _, member := range m.GetMembers() {
			members = append(members, EtcdMember{ID: member.GetId(), Name: member.GetHostname(), Learner: member.GetIsLearner()})
		}
	}
	slices.SortFunc(members, func(a, b EtcdMember) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

// EtcdSnapshot streams a snapshot of the member at an address: its database, and behind it the database's SHA-256. The stream
// ends with ctx.
func (c *Credentials) EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	t, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stream, err := t.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		_ = t.Close()
		return nil, plain("ask "+address+" for a snapshot of etcd", err)
	}
	return &snapshotStream{ReadCloser: stream, ctx: ctx, client: t, address: address}, nil
}

// snapshotStream closes its client, too.
type snapshotStream struct {
	io.ReadCloser
	ctx     context.Context
	client  io.Closer
	address string
}

// Read implements io.Reader.
func (s *snapshotStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && s.ctx.Err() != nil {
		return n, context.Cause(s.ctx) // the client takes an end by its context for the stream's own
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = plain("receive a snapshot of etcd from "+s.address, err)
	}
	return n, err
}

// Close implements io.Closer.
func (s *snapshotStream) Close() error { return errors.Join(s.ReadCloser.Close(), s.client.Close()) }
