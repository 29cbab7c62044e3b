// Package talos reads and writes talosconfigs and asks Talos nodes how they are, through Talos's machinery client.
package talos

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Credentials are a talosconfig's only context.
type Credentials struct {
	config  *config.Config
	context *config.Context
	dialing []grpc.DialOption
}

// Parse reads a talosconfig with the credentials of one cluster in its current context, wherever it comes from: a
// cluster's Secret, a state store, a backup. Only credentials that it holds in itself are accepted, and none of its
// other contexts is kept. The error is a *ConfigError.
func Parse(talosconfig []byte) (*Credentials, error) {
	name, context, err := accept(talosconfig)
	if err != nil {
		return nil, err
	}
	return &Credentials{config: &config.Config{Context: name, Contexts: map[string]*config.Context{name: context}},
		context: context}, nil
}

// Through adds options to every connection that is made with the credentials.
func (c *Credentials) Through(options ...grpc.DialOption) *Credentials {
	c.dialing = append(c.dialing, options...)
	return c
}

// Point sets the addresses that the credentials are used with: endpoints are dialled, nodes are spoken to through them.
func (c *Credentials) Point(endpoints, nodes []string) {
	c.context.Endpoints, c.context.Nodes = slices.Clone(endpoints), slices.Clone(nodes)
}

// Targets are the addresses that Point set.
func (c *Credentials) Targets() (endpoints, nodes []string) {
	return c.context.Endpoints, c.context.Nodes
}

// With are credentials with the same targets, that trust other authorities and show another client certificate, all in
// PEM.
func (c *Credentials) With(authorities, certificate, key []byte) *Credentials {
	context := *c.context
	encode := base64.StdEncoding.EncodeToString
	context.CA, context.Crt, context.Key = encode(authorities), encode(certificate), encode(key)
	name := c.config.Context
	return &Credentials{config: &config.Config{Context: name, Contexts: map[string]*config.Context{name: &context}},
		context: &context, dialing: c.dialing}
}

// Bytes is the talosconfig as a file.
func (c *Credentials) Bytes() ([]byte, error) { return c.config.Bytes() }

// Fingerprint identifies the cluster that the credentials are for: the SHA-256 of its certificate authority.
func (c *Credentials) Fingerprint() (string, error) {
	der, err := certificate(c.context.CA)
	if err != nil {
		return "", fmt.Errorf("read the certificate authority of the talosconfig: %w", err)
	}
	sum := sha256.Sum256(der.Raw)
	return hex.EncodeToString(sum[:]), nil
}

// Expires is when the client certificate ends.
func (c *Credentials) Expires() (time.Time, error) {
	cert, err := certificate(c.context.Crt)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the client certificate of the talosconfig: %w", err)
	}
	return cert.NotAfter, nil
}

// ForClients tells whether the client certificate is marked for use by a client. Talos from v1.12.4 on, and clusters
// that were created with Talos 1.3 or newer, refuse one that is not.
func (c *Credentials) ForClients() (bool, error) {
	cert, err := certificate(c.context.Crt)
	if err != nil {
		return false, fmt.Errorf("read the client certificate of the talosconfig: %w", err)
	}
	return slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth), nil
}

func certificate(encoded string) (*x509.Certificate, error) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Node is what a Talos node says of itself.
type Node struct {
	Version string // Talos's
	Etcd    string // state of the service: "Running", "Preparing", …; empty where there is none yet
	Healthy bool   // etcd is running and its health check passes
}

// Ask asks a node, in the time that ctx gives.
func (c *Credentials) Ask(ctx context.Context, r Route) (Node, error) {
	t, ctx, err := c.reach(ctx, r)
	if err != nil {
		return Node{}, err
	}
	defer t.Close()
	v, err := t.Version(ctx)
	if err != nil {
		return Node{}, plain("ask Talos on "+r.String()+" for its version", err)
	}
	var n Node
	for _, m := range v.GetMessages() {
		n.Version = m.GetVersion().GetTag()
	}
	services, err := t.ServiceInfo(ctx, "etcd")
	if err != nil {
		return Node{}, plain("ask Talos on "+r.String()+" for its services", err)
	}
	for _, s := range services {
		n.Etcd = s.Service.GetState()
		n.Healthy = n.Etcd == "Running" && s.Service.GetHealth().GetHealthy()
	}
	return n, nil
}

func (c *Credentials) dial(ctx context.Context, address string) (*client.Client, error) {
	t, err := client.New(ctx, client.WithConfigContext(c.context), client.WithEndpoints(address),
		client.WithGRPCDialOptions(c.dialing...))
	if err != nil {
		return nil, fmt.Errorf("make a Talos client for %s: %w", address, err)
	}
	return t, nil
}

// plain drops gRPC's frame around an error's message.
func plain(doing string, err error) error {
	if s, ok := status.FromError(err); ok {
		return &callError{doing: doing, message: s.Message(), err: err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// callError is a call that a node did not answer, or refused.
type callError struct {
	doing   string
	message string
	err     error // gRPC's
}

func (e *callError) Error() string { return e.doing + ": " + e.message }
func (e *callError) Unwrap() error { return e.err }
