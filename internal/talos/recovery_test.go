package talos_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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

	"github.com/slipway-k8s/slipway/internal/talos"
)

// disk is a Talos node as far as an etcd is restored on it.
type disk struct {
	node
	lists    map[string]error // folder or file → why it cannot be listed; nil: it is there, with 7 bytes
	proxied  bool             // failures come as messages, as through another node
	uploaded bytes.Buffer
	aimed    []string // at which nodes the calls were
	refuse   error    // of Bootstrap
	recover  bool     // Bootstrap was asked to
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
		return stream.Send(&machine.FileInfo{Metadata: &common.Metadata{}, Name: r.Root, Size: 7})
	}
	if d.proxied {
		return stream.Send(&machine.FileInfo{Metadata: &common.Metadata{Hostname: "a", Error: err.Error()}})
	}
	return err
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
	d := &disk{lists: map[string]error{"/var/lib/etcd.snapshot": nil}}
	r := talos.Route{Endpoint: serve(t, a, d)}
	snapshot := bytes.Repeat([]byte("snapshot"), 1000)
	// A reader may give its last bytes together with its end.
	if err := c.UploadSnapshot(ctx, r, iotest.DataErrReader(bytes.NewReader(snapshot))); err != nil || !bytes.Equal(d.uploaded.Bytes(), snapshot) {
		t.Errorf("%d of %d bytes arrived: %v", d.uploaded.Len(), len(snapshot), err)
	}
	broken := errors.New("the disk is broken")
	if err := c.UploadSnapshot(ctx, r, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("half of a snapshot: %v", err)
	}
	if size, err := c.SnapshotSize(ctx, r); err != nil || size != 7 {
		t.Errorf("it has %d bytes, %v", size, err)
	}
}

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
	if err := c.BootstrapRecovered(ctx, r); !errors.Is(err, talos.ErrEtcdData) || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("data that are there: %v", err)
	}
	d.refuse = status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	if err := c.BootstrapRecovered(ctx, r); err == nil || errors.Is(err, talos.ErrEtcdData) {
		t.Errorf("a node that boots: %v", err)
	}
}
