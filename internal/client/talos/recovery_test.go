package talos_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// disk is a Talos node as far as an etcd is restored on it.
type disk struct {
	node
	lists    map[string]error // folder or file → why it cannot be listed; nil: it is there
	size     int64            // of what is there
	proxied  bool             // failures come as messages, as through another node
	uploaded bytes.Buffer
	reads    func(grpc.ServerStreamingServer[common.Data]) error // nil: of no file
	aimed    []string                                            // at which nodes the calls were
	refuse   error                                               // of Bootstrap
	recover  bool                                                // Bootstrap was asked to
}

func (d *disk) note(ctx context.Context) {
	in, _ := metadata.FromIncomingContext(ctx)
	d.aimed = append(d.aimed, strings.Join(in.Get("node"), ","))
}

func (d *disk) List(r *machine.ListRequest, stream grpc.ServerStreamingServer[machine.FileInfo]) error {
	d.note(stream.Context())
	err, there := d.lists[r.Root]
	switch {
	case !there:
		err = errors.New("lstat " + r.Root + ": no such file or directory")
	case err == nil:
		return stream.Send(&machine.FileInfo{Metadata: &common.Metadata{}, Name: r.Root, Size: d.size})
	}
	if d.proxied {
		return stream.Send(&machine.FileInfo{Metadata: &common.Metadata{Hostname: "a", Error: err.Error()}})
	}
	return err
}

func (d *disk) Read(_ *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	d.note(stream.Context())
	if d.reads == nil {
		return status.Error(codes.NotFound, "stat /var/lib/etcd.snapshot: no such file or directory")
	}
	return d.reads(stream)
}

func (d *disk) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	d.note(stream.Context())
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
		}
		if err != nil {
			return err
		}
		d.uploaded.Write(data.Bytes)
	}
}

func (d *disk) Bootstrap(ctx context.Context, r *machine.BootstrapRequest) (*machine.BootstrapResponse, error) {
	d.note(ctx)
	d.recover = r.RecoverEtcd && !r.RecoverSkipHashCheck
	return &machine.BootstrapResponse{Messages: []*machine.Bootstrap{{}}}, d.refuse
}

func TestEtcdIsLookedFor(t *testing.T) {
	const folder = "/var/lib/etcd/member"
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		lists map[string]error
		want  bool
		fails bool
	}{
		"there":       {map[string]error{folder: nil}, true, false},
		"not there":   {nil, false, false},
		"cannot tell": {map[string]error{folder: errors.New("input/output error")}, false, true},
	} {
		for _, proxied := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			d := &disk{lists: tt.lists, proxied: proxied}
			r := talos.Route{Endpoint: serve(t, a, d)}
			if proxied {
				r.Node = "10.10.64.2"
			}
			if found, err := c.HasEtcdData(ctx, r); found != tt.want || (err != nil) != tt.fails {
				t.Errorf("%s, proxied %v: %v, %v", name, proxied, found, err)
			}
			if len(d.aimed) != 1 || d.aimed[0] != r.Node {
				t.Errorf("%s: the call was for %q, want %q", name, d.aimed, r.Node)
			}
			cancel()
		}
	}
}

func TestSnapshotArrivesWhole(t *testing.T) {
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d := &disk{}
	r := talos.Route{Endpoint: serve(t, a, d)}
	snapshot := bytes.Repeat([]byte("snapshot"), 1000)
	// A reader may give its last bytes together with its end.
	if err := c.UploadSnapshot(ctx, r, iotest.DataErrReader(bytes.NewReader(snapshot))); err != nil ||
		!bytes.Equal(d.uploaded.Bytes(), snapshot) {
		t.Errorf("%d of %d bytes arrived: %v", d.uploaded.Len(), len(snapshot), err)
	}
	broken := errors.New("the disk is broken")
	if err := c.UploadSnapshot(ctx, r, io.MultiReader(strings.NewReader("half"),
		iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("half of a snapshot: %v", err)
	}
}

// A snapshot on a node is another one where one byte differs, whatever its size.
func TestSnapshotIsToldByItsContent(t *testing.T) {
	const path = "/var/lib/etcd.snapshot"
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("snapshot"), 100_000)
	other := bytes.Clone(large)
	other[len(other)-1]++
	there := map[string]error{path: nil}
	for name, tt := range map[string]struct {
		on    []byte // the node
		lists map[string]error
		reads error // after the content
		want  bool
		fails bool
	}{
		"the same":         {on: large, lists: there, want: true},
		"of the same size": {on: other, lists: there},
		"shorter":          {on: large[:len(large)-1], lists: there},
		"empty":            {lists: there},
		"none":             {on: large},
		"read as less":     {on: large[:70_000], lists: there, reads: errSize, fails: true},
		"gone when it is read": {lists: there, reads: status.Error(codes.NotFound, "stat "+path+": no such file or "+
			"directory")},
		"unreadable":  {on: large[:70_000], lists: there, reads: errors.New("input/output error"), fails: true},
		"cannot tell": {on: large, lists: map[string]error{path: errors.New("input/output error")}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			d := &disk{lists: tt.lists, size: int64(len(tt.on))}
			if tt.reads != nil {
				d.size = int64(len(large))
			}
			d.reads = func(stream grpc.ServerStreamingServer[common.Data]) error {
				for part := range slices.Chunk(tt.on, 1<<15) {
					if err := stream.Send(&common.Data{Bytes: part}); err != nil {
						return err
					}
				}
				if errors.Is(tt.reads, errSize) {
					return nil
				}
				return tt.reads
			}
			r := talos.Route{Endpoint: serve(t, a, d), Node: "10.10.64.2"}
			same, err := c.HasSnapshot(ctx, r, bytes.NewReader(large), int64(len(large)))
			if same != tt.want || (err != nil) != tt.fails {
				t.Errorf("%v, %v; want %v", same, err, tt.want)
			}
			if slices.ContainsFunc(d.aimed, func(node string) bool { return node != r.Node }) {
				t.Errorf("the calls were for %q", d.aimed)
			}
		})
	}
	// A node that falls silent does not make it another snapshot: what is there would be written over.
	d := &disk{lists: there, size: int64(len(large))}
	d.reads = func(stream grpc.ServerStreamingServer[common.Data]) error {
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	}
	r := talos.Route{Endpoint: serve(t, a, d)}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if same, err := c.HasSnapshot(ctx, r, bytes.NewReader(large), int64(len(large))); same || err == nil {
		t.Errorf("of a silent node: %v, %v", same, err)
	}
}

// errSize has a node list a file as larger than it is.
var errSize = errors.New("the file is shorter than it was listed")

func TestAlreadyThereIsTold(t *testing.T) {
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d := &disk{}
	r := talos.Route{Endpoint: serve(t, a, d)}
	if err := c.BootstrapRecovered(ctx, r); err != nil || !d.recover {
		t.Errorf("%v; with recovery, and its hash checked: %v", err, d.recover)
	}
	d.refuse = status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	if err := c.BootstrapRecovered(ctx, r); !errors.Is(err, talos.ErrEtcdData) ||
		strings.Contains(err.Error(), "rpc error") {
		t.Errorf("data that are there: %v", err)
	}
	d.refuse = status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	if err := c.BootstrapRecovered(ctx, r); err == nil || errors.Is(err, talos.ErrEtcdData) {
		t.Errorf("a node that boots: %v", err)
	}
}
