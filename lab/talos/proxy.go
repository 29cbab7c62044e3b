package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// frame is a message that is forwarded unchanged: apid knows only where to send a call.
type frame struct{ bytes []byte }

// frameCodec marshals frames. It has the name of the protobuf codec, so that both ends see plain protobuf.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("apid passes frames on, not %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.bytes)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("apid passes frames on, not %T", v)
	}
	f.bytes = data.Materialize() // a copy: gRPC reuses its buffers
	return nil
}

// A backend is where a call is sent to.
type backend struct {
	target string // as the caller named it; it becomes the hostname in the reply's metadata
	dial   func() (*grpc.ClientConn, error)
	hangUp bool // the connection is this call's alone
}

// pass sends a call to one backend, and its replies to the caller, unchanged.
func pass(ctx context.Context, caller grpc.ServerStream, method string, b backend) error {
	stream, done, err := open(ctx, method, b)
	if err != nil {
		return err
	}
	defer done()
	go pump(caller, []grpc.ClientStream{stream})
	for {
		f := &frame{}
		if err := stream.RecvMsg(f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := caller.SendMsg(f); err != nil {
			return err
		}
	}
}

// fanOut sends a call to many backends and merges what comes back: messages of a stream as they come, the others' lists
// of messages into one, each message with the name of its backend. A backend that fails answers with a message that
// carries the error; the call itself succeeds.
func fanOut(ctx context.Context, caller grpc.ServerStream, method string, backends []backend) error {
	ctx, cancel := context.WithCancel(ctx) // ends the streams when the caller has closed its own
	defer cancel()
	streamed := isStreamed(method)
	streams := make([]grpc.ClientStream, len(backends))
	failures := make([]error, len(backends))
	for i, b := range backends {
		stream, done, err := open(ctx, method, b)
		if err != nil {
			failures[i] = err
			continue
		}
		defer done()
		streams[i] = stream
	}
	go pump(caller, streams)

	var (
		wg      sync.WaitGroup
		mu      sync.Mutex // one sender at a time, and the replies
		replies = make([][]byte, len(backends))
	)
	send := func(b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return caller.SendMsg(&frame{bytes: b})
	}
	for i, b := range backends {
		wg.Go(func() {
			var reply []byte
			err := failures[i]
			for err == nil {
				f := &frame{}
				if err = streams[i].RecvMsg(f); err != nil {
					break
				}
				if streamed {
					err = send(tag(f.bytes, b.target))
				} else {
					reply, err = tagList(f.bytes, b.target)
				}
			}
			if !errors.Is(err, io.EOF) {
				if streamed {
					_ = send(failure(b.target, err)) // the caller has closed its stream
					return
				}
				reply = listOf(failure(b.target, err))
			}
			mu.Lock()
			defer mu.Unlock()
			replies[i] = reply
		})
	}
	wg.Wait()
	if streamed {
		return nil
	}
	var all []byte
	for _, r := range replies {
		all = append(all, r...) // two messages with a repeated field, one after the other, are one message with both
	}
	return caller.SendMsg(&frame{bytes: all})
}

// open begins a call; done ends it.
func open(ctx context.Context, method string, b backend) (stream grpc.ClientStream, done func(), err error) {
	conn, err := b.dial()
	if err != nil {
		return nil, nil, status.Errorf(codes.Unavailable, "%s: %v", b.target, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done = func() {
		cancel()
		if b.hangUp {
			conn.Close()
		}
	}
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err = conn.NewStream(ctx, both, method, grpc.ForceCodecV2(frameCodec{}))
	if err != nil {
		done()
		return nil, nil, err
	}
	return stream, done, nil
}

// pump sends the caller's messages to every stream (nil: a backend that cannot be reached). The reader of a stream gets
// its error.
func pump(caller grpc.ServerStream, streams []grpc.ClientStream) {
	for {
		f := &frame{}
		err := caller.RecvMsg(f)
		for _, s := range streams {
			switch {
			case s == nil:
			case err != nil:
				_ = s.CloseSend()
			default:
				_ = s.SendMsg(f)
			}
		}
		if err != nil {
			return
		}
	}
}

// isStreamed says whether a call answers with a stream of messages instead of one message with a list.
func isStreamed(method string) bool {
	for _, s := range machine.MachineService_ServiceDesc.Streams {
		if method == "/"+machine.MachineService_ServiceDesc.ServiceName+"/"+s.StreamName {
			return s.ServerStreams
		}
	}
	return false
}

// Every reply of the machine API is a list of messages in field 1, and every message has its metadata in field 1. So
// has a message of a stream. common.Empty and common.EmptyResponse are the least of both.
const listField = 1

// tag appends metadata with the backend's name to a message. Protobuf merges it with a field that exists.
func tag(message []byte, target string) []byte {
	return append(message, mustMarshal(&common.Empty{Metadata: &common.Metadata{Hostname: target}})...)
}

// failure is a message that carries nothing but a backend's error.
func failure(target string, err error) []byte {
	return mustMarshal(&common.Empty{Metadata: &common.Metadata{Hostname: target, Error: err.Error(),
		Status: status.Convert(err).Proto()}})
}

// tagList appends metadata to every message of a reply.
func tagList(reply []byte, target string) ([]byte, error) {
	var tagged []byte
	for len(reply) > 0 {
		field, wire, n := protowire.ConsumeTag(reply)
		if n < 0 || field != listField || wire != protowire.BytesType {
			return nil, status.Errorf(codes.Internal, "the reply of %s is no list of messages", target)
		}
		message, m := protowire.ConsumeBytes(reply[n:])
		if m < 0 {
			return nil, status.Errorf(codes.Internal, "the reply of %s is cut short", target)
		}
		tagged = append(tagged, listOf(tag(append([]byte(nil), message...), target))...)
		reply = reply[n+m:]
	}
	return tagged, nil
}

// listOf is a reply with one message.
func listOf(message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, listField, protowire.BytesType), message)
}

func mustMarshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		// only strings that are no UTF-8, which neither addresses nor our errors are
		panic(fmt.Sprintf("marshal %T: %v", m, err))
	}
	return b
}
