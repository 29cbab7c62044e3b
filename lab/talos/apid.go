package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// localBuffer is the size in bytes of the pipe between apid and machined.
const localBuffer = 256 << 10

// apid serves the machine API with TLS on the server's addresses, authenticates the caller, and forwards each call to
// the nodes that its metadata names: "node" one, "nodes" many, this one without either.
type apid struct {
	system *system

	local *grpc.ClientConn
	pipe  *bufconn.Listener
	inner *grpc.Server // machined
	outer *grpc.Server

	mu       sync.Mutex
	identity apidIdentity
}

// apidIdentity is what apid shows of itself.
type apidIdentity struct {
	signer *pki.CA
	sans   []string
	server tls.Certificate
	client tls.Certificate // to other nodes
}

// newAPID makes the apid of a system's machined. The system must have a signer.
func newAPID(y *system) (*apid, error) {
	a := &apid{system: y}
	if _, err := a.currentIdentity(); err != nil {
		return nil, err
	}

	a.pipe = bufconn.Listen(localBuffer)
	a.inner = grpc.NewServer(grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.UnaryInterceptor(authorizeUnary), grpc.StreamInterceptor(authorizeStream))
	machine.RegisterMachineServiceServer(a.inner, &machined{system: y})
	cosi.RegisterStateServer(a.inner, cosiserver.NewState(y.applied.readOnly()))
	var err error
	a.local, err = grpc.NewClient("passthrough:///machined",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return a.pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)))
	if err != nil {
		return nil, err
	}
	a.outer = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: a.serverTLS})),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.ForceServerCodecV2(frameCodec{}),
		grpc.UnknownServiceHandler(a.direct),
	)
	return a, nil
}

// serve serves on the server's addresses, also on those that it gets later, until ctx is done.
func (a *apid) serve(ctx context.Context) {
	y := a.system
	go a.inner.Serve(a.pipe) // it returns when it is stopped, with no other error
	defer func() {
		a.outer.Stop()
		a.inner.Stop()
		a.local.Close()
	}()
	serveOnAddresses(ctx, y.server.addresses, constants.ApidPort, y.talos.config.Listen, func(l net.Listener) {
		if err := a.outer.Serve(l); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
			y.log.Warn("the machine API stopped serving an address", "address", l.Addr().String(), "reason", err)
		}
	}, func(problem error) {
		if problem != nil {
			y.services.set(serviceAPID, stateWaiting, problem.Error())
			return
		}
		y.services.run(serviceAPID, "Started")
	})
}

// sans are the current names and addresses of the server's certificate.
func (a *apid) sans() []string {
	addrs, _ := a.system.server.addresses.get()
	return a.system.config.apidSANs(a.system.hostname, addrs)
}

// serverTLS is the configuration for one more connection: trust and certificate are the present ones.
func (a *apid) serverTLS(*tls.ClientHelloInfo) (*tls.Config, error) {
	identity, err := a.currentIdentity()
	if err != nil {
		return nil, err
	}
	authorities, _ := a.system.authorities.get()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities.machine.pool,
		Certificates:           []tls.Certificate{identity.server},
		SessionTicketsDisabled: true, // a resumed session would skip the check against what is trusted now
	}, nil
}

// currentIdentity returns the server's certificates, new ones when its addresses or the authority have changed. While
// no control plane server of a worker's cluster can sign, the worker keeps those it has.
func (a *apid) currentIdentity() (apidIdentity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	signer, _, _ := a.system.machineSigner()
	if signer == nil {
		signer = a.identity.signer
	}
	if signer == nil {
		return apidIdentity{}, errors.New("no authority to sign the machine API's certificate is known")
	}
	sans := a.sans()
	if a.identity.signer != nil && sameCA(signer, a.identity.signer) && slices.Equal(sans, a.identity.sans) {
		return a.identity, nil
	}
	issue := func(r pki.Request) (tls.Certificate, error) {
		pair, err := signer.Issue(r)
		if err != nil {
			return tls.Certificate{}, err
		}
		return pair.TLS()
	}
	server, err := issue(pki.Request{CommonName: a.system.hostname, Hosts: sans})
	if err != nil {
		return apidIdentity{}, err
	}
	client, err := issue(pki.Request{CommonName: a.system.hostname, Organizations: []string{string(role.Impersonator)}})
	if err != nil {
		return apidIdentity{}, err
	}
	a.identity = apidIdentity{signer: signer, sans: sans, server: server, client: client}
	return a.identity, nil
}

// direct handles every call.
func (a *apid) direct(_ any, caller grpc.ServerStream) error {
	ctx := caller.Context()
	method, _ := grpc.MethodFromServerStream(caller)
	md, _ := metadata.FromIncomingContext(ctx)
	nodes, node := md.Get("nodes"), md.Get("node")
	targets := slices.Concat(nodes, node)
	forward := a.system.config.controlPlane() // workers pass nothing on
	out := metadata.New(nil)
	out.Set(roleKey, peerRoles(ctx, md).Strings()...)
	ctx = metadata.NewOutgoingContext(ctx, out)

	switch {
	case len(node) > 1:
		return status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	case len(targets) == 0:
		return pass(ctx, caller, method, a.machined())
	case !forward && len(targets) == 1 && slices.Contains(a.sans(), targets[0]):
		return pass(ctx, caller, method, a.machined()) // a worker knows only itself
	case !forward:
		return status.Error(codes.PermissionDenied, "no request forwarding")
	case len(nodes) > 0:
		if !strings.HasPrefix(method, "/"+machine.MachineService_ServiceDesc.ServiceName+"/") {
			return status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", method)
		}
		backends := make([]backend, len(nodes))
		for i, n := range nodes {
			backends[i] = a.remote(n)
		}
		return fanOut(ctx, caller, method, backends)
	default:
		return pass(ctx, caller, method, a.remote(node[0]))
	}
}

func (a *apid) machined() backend {
	return backend{target: a.system.hostname, dial: func() (*grpc.ClientConn, error) { return a.local, nil }}
}

// remote is the apid of another node, or this one's own under one of its addresses.
func (a *apid) remote(target string) backend {
	return backend{target: target, hangUp: true, dial: func() (*grpc.ClientConn, error) {
		addr, err := netip.ParseAddr(target)
		if err != nil {
			known := false
			if addr, known = a.system.resolve(target); !known {
				return nil, fmt.Errorf("lookup %s: no such member of the cluster", target)
			}
		}
		if !addr.IsLoopback() {
			return nil, fmt.Errorf("dial %s: no route to host: the lab's network is 127.0.0.0/8", addr)
		}
		identity, err := a.currentIdentity()
		if err != nil {
			return nil, err
		}
		authorities, _ := a.system.authorities.get()
		return grpc.NewClient("passthrough:///"+netip.AddrPortFrom(addr, constants.ApidPort).String(),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
				MinVersion: tls.VersionTLS13, RootCAs: authorities.machine.pool,
				Certificates: []tls.Certificate{identity.client}, ServerName: addr.String(),
			})),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)))
	}}
}
