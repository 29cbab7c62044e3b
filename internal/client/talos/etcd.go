package talos

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// EtcdMember is a member of the cluster's etcd, as etcd itself lists it.
type EtcdMember struct {
	ID      uint64
	Name    string // of its node
	Learner bool   // does not vote yet
}

// EtcdMembers lists etcd's members by name. The node may forward the request to the member of another node.
func (c *Credentials) EtcdMembers(ctx context.Context, r Route) ([]EtcdMember, error) {
	return c.members(ctx, r, false)
}

// LocalEtcdMembers lists the members that the node's own member of etcd knows. A member without a leader does not
// answer.
func (c *Credentials) LocalEtcdMembers(ctx context.Context, r Route) ([]EtcdMember, error) {
	return c.members(ctx, r, true)
}

func (c *Credentials) members(ctx context.Context, r Route, own bool) ([]EtcdMember, error) {
	var list *machine.EtcdMemberListResponse
	doing := "list etcd's members through " + r.String()
	err := c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) (err error) {
		list, err = t.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: own})
		return err
	})
	if err != nil {
		return nil, err
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

// EtcdIndex is how far a node's own member of etcd has applied etcd's log. It answers without a leader, too.
func (c *Credentials) EtcdIndex(ctx context.Context, r Route) (index uint64, err error) {
	doing := "ask " + r.String() + " for the state of its etcd"
	err = c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) error {
		reply, err := t.EtcdStatus(ctx)
		if err == nil && len(reply.GetMessages()) == 0 {
			err = errors.New("it answers with nothing")
		}
		if err != nil {
			return err
		}
		index = reply.GetMessages()[0].GetMemberStatus().GetRaftAppliedIndex()
		return nil
	})
	return index, err
}

// EtcdSnapshot streams a snapshot of a node's member: its database, and behind it the database's SHA-256. The
// stream ends with ctx. A member without a leader gives one, too.
func (c *Credentials) EtcdSnapshot(ctx context.Context, r Route) (io.ReadCloser, error) {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return nil, err
	}
	stream, err := t.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		_ = t.Close()
		return nil, plain("ask "+r.String()+" for a snapshot of etcd", err)
	}
	return &snapshotStream{ReadCloser: stream, ctx: ctx, client: t, route: r}, nil
}

// snapshotStream closes its client, too.
type snapshotStream struct {
	io.ReadCloser
	ctx    context.Context
	client io.Closer
	route  Route
}

// Read implements io.Reader.
func (s *snapshotStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && s.ctx.Err() != nil {
		return n, context.Cause(s.ctx) // the client takes an end by its context for the stream's own
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = plain("receive a snapshot of etcd from "+s.route.String(), err)
	}
	return n, err
}

// Close implements io.Closer.
func (s *snapshotStream) Close() error { return errors.Join(s.ReadCloser.Close(), s.client.Close()) }
