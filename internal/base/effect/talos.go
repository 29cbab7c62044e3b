package effect

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// talosReads begin the names of methods of Talos's API that change nothing. A method that is not known changes
// something.
var talosReads = []string{
	"Version", "ServiceList", "EtcdMemberList", "EtcdStatus", "EtcdAlarmList", "EtcdSnapshot", "Hostname", "LoadAvg",
	"SystemStat", "CPUInfo",
	"CPUFreqStats", "NetworkDeviceStats", "Memory", "Processes", "Mounts", "DiskStats", "DiskUsage", "Stats", "Containers",
	"Dmesg", "Events",
	"Kubeconfig", "List", "Logs", "LogsContainers", "Netstat", "Read", "PacketCapture", "Copy", "Get", "Watch", "Disks",
	"ImageList",
	"GenerateConfiguration", "GenerateClientConfiguration", "HealthCheck", "Time", "TimeCheck", "EtcdDowngradeValidate",
}

// TalosCall names a method of Talos's API, "/machine.MachineService/Bootstrap": "Bootstrap machine.MachineService".
func TalosCall(method string) (verb, object string, ok bool) {
	object, verb, found := strings.Cut(strings.Trim(method, "/"), "/")
	return verb, object, found && !slices.Contains(talosReads, verb)
}

// TalosDial are the options of a connection whose calls are written down; none for a nil Recorder.
func (r *Recorder) TalosDial() []grpc.DialOption {
	if r == nil {
		return nil
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			verb, object, ok := TalosCall(method)
			if dry, is := request.(interface{ GetDryRun() bool }); is && dry.GetDryRun() {
				ok = false
			}
			ended := r.watch(ctx, Seen{System: Talos, Verb: verb, Object: object, RPC: true, Host: c.Target()})
			call := func() error { return invoke(ctx, method, request, reply, c, opts...) }
			var err error
			if ok {
				err = r.Do(ctx, Talos, verb, object, call)
			} else {
				err = call()
			}
			ended(0, err)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			verb, object, ok := TalosCall(method)
			ended := r.watch(ctx, Seen{System: Talos, Verb: verb, Object: object, RPC: true, Host: c.Target()})
			if !ok {
				stream, err := open(ctx, desc, c, method, opts...)
				ended(0, err)
				return stream, err
			}
			if err := r.guard(Talos); err != nil {
				ended(0, err)
				return nil, err
			}
			call := r.Begin(ctx, Talos, verb, object)
			stream, err := open(ctx, desc, c, method, opts...)
			ended(0, err)
			if err != nil {
				call.End(err)
				return nil, err
			}
			return &recordedStream{ClientStream: stream, call: call}, nil
		}),
	}
}

// recordedStream is a call whose request or reply comes in pieces. It is answered when its first answer is.
type recordedStream struct {
	grpc.ClientStream
	call *Call
	once sync.Once
}

// RecvMsg implements grpc.ClientStream.
func (s *recordedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.once.Do(func() {
		if errors.Is(err, io.EOF) {
			s.call.End(nil)
			return
		}
		s.call.End(err)
	})
	return err
}
