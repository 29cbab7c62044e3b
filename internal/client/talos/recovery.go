package talos

import (
	"bytes"
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

// ErrEtcdData is wrapped by the refusal to bootstrap a node that holds data of etcd. It says nothing about whose they
// are.
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

// call makes a call of a node; doing says which, in its error.
func (c *Credentials) call(ctx context.Context, r Route, doing string,
	call func(context.Context, *client.Client) error) error {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := call(ctx, t); err != nil {
		return plain(doing, err)
	}
	return nil
}

// HasEtcdData tells whether a node holds data of an etcd member. An error is no answer.
func (c *Credentials) HasEtcdData(ctx context.Context, r Route) (bool, error) {
	found, err := c.files(ctx, r, etcdMemberFolder)
	return len(found) > 0, err
}

// HasSnapshot tells whether the snapshot that was uploaded to a node is the one that is given, of so many bytes. It
// reads the node's only where the sizes are the same, and then as far as both are the same.
func (c *Credentials) HasSnapshot(ctx context.Context, r Route, snapshot io.Reader, size int64) (bool, error) {
	found, err := c.files(ctx, r, constants.EtcdRecoverySnapshotPath)
	if err != nil || len(found) == 0 || found[0].GetSize() != size {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream where it is not read to its end
	defer cancel()
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return false, err
	}
	defer t.Close()
	doing := "read the snapshot on " + r.String()
	stream, err := t.Read(ctx, constants.EtcdRecoverySnapshotPath)
	if err != nil {
		return false, plain(doing, err)
	}
	defer stream.Close()
	there := &readError{source: stream}
	same, err := sameContent(there, snapshot)
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("%s: %w", doing, context.Cause(ctx)) // the client takes an end by its context for the file's
	case there.err != nil && noSuchFile(there.err.Error()):
		return false, nil // it was there a moment ago
	case there.err != nil:
		return false, plain(doing, there.err)
	case err != nil:
		return false, fmt.Errorf("read the snapshot to compare it with that on %s: %w", r, err)
	case !same && there.ended && there.read < size:
		// The client takes a node's own end by the deadline, which may come before that of ctx, for the file's.
		return false, fmt.Errorf("%s: it ended after %d of %d bytes", doing, there.read, size)
	}
	return same, nil
}

// readError keeps how much of a source was read, and why not more.
type readError struct {
	source io.Reader
	read   int64
	ended  bool
	err    error
}

// Read implements io.Reader.
func (r *readError) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	r.read += int64(n)
	if errors.Is(err, io.EOF) {
		r.ended = true
	} else if err != nil {
		r.err = err
	}
	return n, err
}

// compareAtOnce is how many bytes of two files are held in memory.
const compareAtOnce = 256 << 10

// sameContent tells whether two readers give the same bytes.
func sameContent(a, b io.Reader) (bool, error) {
	ofA, ofB := make([]byte, compareAtOnce), make([]byte, compareAtOnce)
	for {
		n, err := io.ReadFull(a, ofA)
		if err != nil && !atEnd(err) {
			return false, err
		}
		m, errB := io.ReadFull(b, ofB)
		if errB != nil && !atEnd(errB) {
			return false, errB
		}
		if !bytes.Equal(ofA[:n], ofB[:m]) {
			return false, nil
		}
		if n < compareAtOnce {
			return true, nil
		}
	}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

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

// noSuchFile recognizes the kernel's message for it, which Talos passes on as a text.
func noSuchFile(message string) bool {
	return strings.Contains(message, "no such file or directory")
}

// UploadSnapshot brings a snapshot of etcd to a control plane node, for a BootstrapRecovered. What was uploaded before
// is replaced.
func (c *Credentials) UploadSnapshot(ctx context.Context, r Route, snapshot io.Reader) error {
	return c.call(ctx, r, "upload the snapshot to "+r.String(), func(ctx context.Context, t *client.Client) error {
		_, err := t.EtcdRecover(ctx, &wholeReader{source: snapshot})
		return err
	})
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

// BootstrapRecovered has a node restore the uploaded snapshot, whose hash it checks, into an etcd of which it is the
// only member. Its error wraps ErrEtcdData where the node holds data already.
func (c *Credentials) BootstrapRecovered(ctx context.Context, r Route) error {
	err := c.call(ctx, r, "restore etcd on "+r.String(), func(ctx context.Context, t *client.Client) error {
		return t.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true})
	})
	if status.Code(err) == codes.AlreadyExists {
		return fmt.Errorf("%w: %w", ErrEtcdData, err)
	}
	return err
}

// WipeEphemeral resets the EPHEMERAL partition of a node, with etcd's data and everything that Pods keep on it, and
// reboots it. The node does not leave etcd in order: it is for an etcd that cannot answer.
func (c *Credentials) WipeEphemeral(ctx context.Context, r Route) error {
	partition := []*machine.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}}
	doing := "reset the EPHEMERAL partition of " + r.String()
	return c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) error {
		return t.ResetGeneric(ctx, &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: partition})
	})
}

// Upgrade has a node install the Talos of an installer image beside the one that it runs, and reboot into it. Talos
// drains the node first, and keeps what is on its disk. It refuses while a member of etcd does not serve, and boots the
// old Talos again where the new one does not start. The call returns when the node has accepted it.
func (c *Credentials) Upgrade(ctx context.Context, r Route, installer string) error {
	doing := "upgrade " + r.String() + " to " + installer
	return c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) error {
		//lint:ignore SA1019 Talos before 1.13 knows this call alone
		_, err := t.UpgradeWithOptions(ctx, client.WithUpgradeImage(installer), client.WithUpgradePreserve(true))
		return err
	})
}
