package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// machined serves the machine API of its server. Other calls are answered as unimplemented.
type machined struct {
	machine.UnimplementedMachineServiceServer
	system *system
}

// controlPlane refuses a call that only control plane servers answer.
func (m *machined) controlPlane(api string) error {
	if m.system.etcd == nil {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
	}
	return nil
}

// Version returns the versions of Talos and the platform.
func (m *machined) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version:  &machine.VersionInfo{Tag: m.system.version, Sha: "slipway-lab", Os: "linux", Arch: runtime.GOARCH},
		Platform: &machine.PlatformInfo{Name: "hcloud", Mode: cloudMode{}.String()},
		Features: &machine.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname returns the server's hostname.
func (m *machined) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: m.system.hostname}}}, nil
}

// ServiceList returns all services.
func (m *machined) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{{Services: m.system.services.list()}}}, nil
}

// Events first sends an empty event, which tells the client that the stream has begun, then the requested past events,
// then new events, until the client closes the stream.
func (m *machined) Events(request *machine.EventsRequest, stream grpc.ServerStreamingServer[machine.Event]) error {
	if err := stream.Send(&machine.Event{}); err != nil {
		return err
	}
	next := m.system.events.tail(request)
	for {
		events, after, more := m.system.events.after(next)
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
		}
		next = after
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-more:
		}
	}
}

// List lists files below /var, the server's disk.
func (m *machined) List(request *machine.ListRequest, stream grpc.ServerStreamingServer[machine.FileInfo]) error {
	root := path.Clean("/" + request.Root)
	dir := m.system.server.path(filepath.FromSlash(root))
	if root != "/var" && !strings.HasPrefix(root, "/var/") {
		return fmt.Errorf("lstat %s: no such file or directory (a simulated server has only /var)", root)
	}
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		below, _ := filepath.Rel(dir, file) // file is below dir
		depth := 0
		if below != "." {
			depth = 1 + strings.Count(filepath.ToSlash(below), "/")
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && depth > 0:
			return nil // it went away meanwhile, as etcd's files do
		case err != nil:
			return fmt.Errorf("lstat %s: %w", path.Join(root, filepath.ToSlash(below)), unwrapPath(err))
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if err := stream.Send(fileInfo(root, below, info)); err != nil {
			return err
		}
		if entry.IsDir() && depth >= listDepth(request) {
			return fs.SkipDir
		}
		return nil
	})
}

// Read sends a file below /var.
func (m *machined) Read(request *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	name := path.Clean("/" + request.Path)
	if !strings.HasPrefix(name, "/var/") {
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory (a simulated server has only /var)",
			name)
	}
	file, err := os.Open(m.system.server.path(filepath.FromSlash(name)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", name)
	case err != nil:
		return fmt.Errorf("open %s: %w", name, unwrapPath(err))
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.New("path must be a regular file")
	}
	buffer := make([]byte, snapshotChunk)
	for {
		n, err := file.Read(buffer)
		if n > 0 {
			if err := stream.Send(&common.Data{Bytes: buffer[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", name, unwrapPath(err))
		}
	}
}

// listDepth is how many levels below the root are listed.
func listDepth(r *machine.ListRequest) int {
	switch {
	case !r.Recurse:
		return 1
	case r.RecursionDepth == 0:
		return int(^uint(0) >> 1) // all of them
	default:
		return int(r.RecursionDepth)
	}
}

func fileInfo(root, below string, info fs.FileInfo) *machine.FileInfo {
	return &machine.FileInfo{
		Metadata: &common.Metadata{}, // clients read it without a check
		Name:     path.Join(root, filepath.ToSlash(below)), RelativeName: filepath.ToSlash(below),
		Size: info.Size(), Mode: uint32(info.Mode()), Modified: info.ModTime().Unix(), IsDir: info.IsDir(),
	}
}

// unwrapPath removes the lab's path from an error.
func unwrapPath(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Reboot ends the system and boots it again, with its disk.
func (m *machined) Reboot(context.Context, *machine.RebootRequest) (*machine.RebootResponse, error) {
	m.system.endSoon(errReboot)
	return &machine.RebootResponse{Messages: []*machine.Reboot{{}}}, nil
}

// Shutdown ends the system and turns the server off.
func (m *machined) Shutdown(context.Context, *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	m.system.endSoon(errHalt)
	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{}}}, nil
}

// Reset wipes the EPHEMERAL partition, which is all of /var, after the server has left etcd if graceful is set.
// The configuration stays: it is the server's user data, or what was applied later, on the partition STATE.
func (m *machined) Reset(ctx context.Context, request *machine.ResetRequest) (*machine.ResetResponse, error) {
	for _, p := range request.SystemPartitionsToWipe {
		if p.Label != constants.EphemeralPartitionLabel {
			return nil, status.Errorf(codes.InvalidArgument, "partition %s of a simulated server cannot be wiped: only %s can",
				p.Label, constants.EphemeralPartitionLabel)
		}
	}
	if request.Graceful && m.system.etcd != nil {
		if err := m.leave(ctx); err != nil {
			return nil, fmt.Errorf("leave etcd before the reset: %w", err)
		}
	}
	m.system.wipe.Store(true)
	cause := errHalt
	if request.Reboot {
		cause = errReboot
	}
	m.system.endSoon(cause)
	return &machine.ResetResponse{Messages: []*machine.Reset{{}}}, nil
}

// replyTime is how long a system that ends by request waits so that its reply reaches the client.
const replyTime = 200 * time.Millisecond

// endSoon ends the system after the reply has been sent.
func (y *system) endSoon(cause error) {
	time.AfterFunc(replyTime, func() { y.end(cause) })
}

// wipeIfAsked wipes the EPHEMERAL partition if a reset requested it.
func (y *system) wipeIfAsked() {
	if !y.wipe.Load() {
		return
	}
	if err := os.RemoveAll(y.server.path("var")); err != nil {
		y.log.Error("the EPHEMERAL partition was not wiped", "reason", err)
	}
}
