package lab

import (
	"context"
	"errors"
	"net"
)

// lookupHostsFile resolves a host name by this machine's hosts file alone: a rehearsal asks no name server.
func lookupHostsFile(ctx context.Context, name string) ([]string, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("in the lab only the hosts file counts")
	}}
	return resolver.LookupHost(ctx, name)
}
