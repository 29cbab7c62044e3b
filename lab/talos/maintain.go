package talos

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// maintain serves the machine API of a server without a usable configuration, until ctx is done: with a self-signed
// certificate, to every client, and with the reason as the answer to every call.
func (y *system) maintain(ctx context.Context, reason error) {
	if ctx.Err() != nil {
		return
	}
	y.log.Warn("the server stays in maintenance mode", "reason", reason)
	y.setPhase(phaseMaintenance, oneLine(reason))
	refusal := status.Errorf(codes.Unimplemented, "API is not implemented in maintenance mode: %s", oneLine(reason))
	cert, err := maintenanceCertificate(y.name)
	if err != nil {
		y.log.Warn("no machine API in maintenance mode", "reason", err)
		<-ctx.Done()
		return
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}})),
		grpc.ForceServerCodecV2(frameCodec{}),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return refusal }),
	)
	defer server.Stop()
	serveOnAddresses(ctx, y.server.addresses, constants.ApidPort, y.talos.config.Listen, func(l net.Listener) {
		_ = server.Serve(l) // it ends with the listener
	}, func(problem error) {
		if problem != nil {
			y.log.Warn("no machine API in maintenance mode", "reason", problem)
		}
	})
}

func maintenanceCertificate(name string) (tls.Certificate, error) {
	ca, err := pki.NewCA("maintenance")
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := ca.Issue(pki.Request{CommonName: name, Hosts: []string{name}})
	if err != nil {
		return tls.Certificate{}, err
	}
	return pair.TLS()
}
