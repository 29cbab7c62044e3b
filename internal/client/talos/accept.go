package talos

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"sigs.k8s.io/yaml"
)

// MaxConfigBytes is the largest talosconfig that is read. One of a cluster has some 3 KiB.
const MaxConfigBytes = 256 << 10

// ConfigError says why a talosconfig is not used.
type ConfigError struct {
	// Field is what it must not have, as a talosconfig writes it, such as "auth.siderov1"; empty: it is damaged or
	// incomplete.
	Field string
	text  string
}

// Error implements error. It has nothing secret of the talosconfig.
func (e *ConfigError) Error() string { return "read talosconfig: " + e.text }

// Refused reports whether an error is that a talosconfig was not accepted.
func Refused(err error) bool { return errors.As(err, new(*ConfigError)) }

func damaged(format string, args ...any) *ConfigError {
	return &ConfigError{text: fmt.Sprintf(format, args...)}
}

// document is a talosconfig as far as it is accepted, and what is refused by name.
type document struct {
	Context  string              `json:"context"`
	Contexts map[string]*inFiles `json:"contexts"`
}

// inFiles is a context of a talosconfig.
type inFiles struct {
	Target    string   `json:"target"`
	Endpoints []string `json:"endpoints"`
	Nodes     []string `json:"nodes"`
	CA        string   `json:"ca"`
	Crt       string   `json:"crt"`
	Key       string   `json:"key"`
	Auth      *struct {
		Basic    any `json:"basic"`
		SideroV1 any `json:"siderov1"`
	} `json:"auth"`
	Cluster string `json:"cluster"`
}

// accept reads the current context of a talosconfig that others may have written. It holds the authority and a client
// certificate of it with its key, in itself. Other ways to authenticate, and to be led to another cluster, are refused
// in every context.
func accept(data []byte) (string, *config.Context, error) {
	if len(data) > MaxConfigBytes {
		return "", nil, damaged("it has %d bytes; at most %d are read", len(data), MaxConfigBytes)
	}
	d := document{}
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		return "", nil, damaged("%v", err)
	}
	for name, c := range d.Contexts {
		if c == nil {
			return "", nil, damaged("its context %.80q is empty", name)
		}
		if err := c.check(name); err != nil {
			return "", nil, err
		}
	}
	c := d.Contexts[d.Context]
	if c == nil {
		return "", nil, damaged("it has no context %.80q", d.Context)
	}
	if err := c.checkCredentials(); err != nil {
		return "", nil, err
	}
	return d.Context, &config.Context{Endpoints: c.Endpoints, Nodes: c.Nodes, CA: c.CA, Crt: c.Crt, Key: c.Key}, nil
}

func (c *inFiles) check(name string) error {
	refusal := func(field, why string) error {
		return &ConfigError{Field: field, text: fmt.Sprintf("field %s of context %.80q is refused: %s", field, name, why)}
	}
	const other = "only the cluster's own client certificate authenticates"
	switch {
	case c.Auth != nil && c.Auth.Basic != nil:
		return refusal("auth.basic", other)
	case c.Auth != nil && c.Auth.SideroV1 != nil:
		return refusal("auth.siderov1", other+"; this would sign with a key on this machine")
	case c.Cluster != "":
		return refusal("cluster", "the endpoint would pass calls on to another cluster")
	case c.Target != "":
		return refusal("target", "no supported release of Talos writes it")
	}
	return nil
}

// checkCredentials reads the certificates. Dates are left to others: a certificate that has ended is replaced.
func (c *inFiles) checkCredentials() error {
	var raw [3][]byte
	for i, of := range []struct{ name, value string }{{"ca", c.CA}, {"crt", c.Crt}, {"key", c.Key}} {
		var err error
		if raw[i], err = base64.StdEncoding.DecodeString(of.value); err != nil || len(raw[i]) == 0 {
			return damaged("its %s is not embedded as base64", of.name)
		}
	}
	pair, err := tls.X509KeyPair(raw[1], raw[2])
	if err != nil {
		return damaged("its crt and key are no pair: %v", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return damaged("its crt is not a certificate: %v", err)
	}
	for rest := bytes.TrimSpace(raw[0]); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return damaged("its ca is not PEM")
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return damaged("its ca is not a certificate: %v", err)
		}
		if leaf.CheckSignatureFrom(authority) == nil {
			return nil
		}
	}
	return damaged("its crt is not of its ca")
}
