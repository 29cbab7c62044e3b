package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcdMemberFolder is what an etcd member's data lie in on a node, once it has any.
const etcdMemberFolder = "/var/lib/etcd/member"

// ErrEtcdData is wrapped by the refusal to bootstrap a node that holds data of etcd. It says nothing about whose they are.
var ErrEtcdData = errors.New("the node holds data of etcd already")

// Route is how a node is reached.
type Route struct {
	Endpoint string // the address that is dialled
	Node     string // the node's own address, where Endpoint is another that passes calls on; empty: Endpoint is the node
}

// String is "10.0.0.2" or "10.0.0.2 through 192.0.2.1".
func (r Route) String() string {
	if r.Node == "" {
		return r.Endpoint
	}
	return r.Node + " through " + r.Endpoint
}

func (c *Credentials) reach(ctx context.Context, r Route) (*client.Client, context.Context, error) {
	t, err := c.dial(ctx, r.Endpoint)
	if err == nil && r.Node != "" {
		ctx = client.WithNode(ctx, r.Node)
	}
	return t, ctx, err
}

// HasEtcdData tells whether a node holds data of an etcd member. An error is no answer.
func (c *Credentials) HasEtcdData(ctx context.Context, r Route) (bool, error) {
	found, err := c.files(ctx, r, etcdMemberFolder)
	return len(found) > 0, err
}

// SnapshotSize is the size in bytes of the snapshot that was uploaded to a node; 0 where there is none.
func (c *Credentials) SnapshotSize(ctx context.Context, r Route) (int64, error) {
	found, err := c.files(ctx, r, constants.EtcdRecoverySnapshotPath)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].GetSize(), nil
}

// files lists a folder, or a file, of a node; none where it does not exist.
func (c *Credentials) files(ctx context.Context, r Route, root string) ([]*machine.FileInfo, error) {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	doing := "look at " + root + " of " + r.String()
	stream, err := t.LS(ctx, &machine.ListRequest{Root: root})
	if err != nil {
		return nil, plain(doing, err)
	}
	var found []*machine.FileInfo
	for {
		info, err := stream.Recv()
		// Through another node's proxy a failure comes as a message.
		trouble := cmp.Or(info.GetMetadata().GetError(), info.GetError())
		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil && noSuchFile(err.Error()) || noSuchFile(trouble):
			return nil, nil
		case err != nil:
			return nil, plain(doing, err)
		case trouble != "":
			return nil, fmt.Errorf("%s: %s", doing, trouble)
		}
		found = append(found, info)
	}
}

// noSuchFile tells the kernel's word for it, which Talos passes on as a text.
func noSuchFile(message string) bool {
	return strings.Contains(message, "no such file or directory")
}

// UploadSnapshot brings a snapshot of etcd to a control plane node, for a BootstrapRecovered. What was uploaded before is
// replaced.
func (c *Credentials) UploadSnapshot(ctx context.Context, r Route, snapshot io.Reader) error {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := t.EtcdRecover(ctx, &wholeReader{source: snapshot}); err != nil {
		return plain("upload the snapshot to "+r.String(), err)
	}
	return nil
}

// wholeReader tells of the end only after the last bytes: the client drops what comes together with an end.
type wholeReader struct {
	source io.Reader
	end    error
}

func (w *wholeReader) Read(p []byte) (int, error) {
	if w.end != nil {
		return 0, w.end
	}
	n, err := w.source.Read(p)
	if n > 0 {
		w.end, err = err, nil
	}
	return n, err
}

// BootstrapRecovered has a node restore the uploaded snapshot, whose hash it checks, into an etcd of which it is the only
// member. Its error wraps ErrEtcdData where the node holds data already.
func (c *Credentials) BootstrapRecovered(ctx context.Context, r Route) error {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return err
	}
	defer t.Close()
	err = t.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true})
	if err == nil {
		return nil
	}
	told := plain("restore etcd on "+r.String(), err)
	if status.Code(err) == codes.AlreadyExists {
		return fmt.Errorf("%w: %w", ErrEtcdData, told)
	}
	return told
}

// WipeEphemeral resets the EPHEMERAL partition of a node, with etcd's data and everything that Pods keep on it, and reboots it.
// The node does not leave etcd in order: it is for an etcd that cannot answer.
func (c *Credentials) WipeEphemeral(ctx context.Context, r Route) error {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return err
	}
	defer t.Close()
	err = t.ResetGeneric(ctx, &machine.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}},
	})
	if err != nil {
		return plain("reset the EPHEMERAL partition of "+r.String(), err)
	}
	return nil
}
