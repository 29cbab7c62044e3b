// Package kubeconfig accepts kubeconfigs that come from outside of the operator's hands: a cluster's Secret, a state
// store, a backup. It makes no request and opens no file.
package kubeconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxBytes is the largest kubeconfig that is read. One of Cluster API has some 6 KiB.
const MaxBytes = 256 << 10

// Error says why a kubeconfig is not used.
type Error struct {
	// Field is what it must not have, as a kubeconfig writes it, such as "exec"; empty: it is damaged or incomplete.
	Field string
	text  string
}

// Error implements error. It has nothing secret of the kubeconfig.
func (e *Error) Error() string { return e.text }

// Refused reports whether an error is that a kubeconfig was not accepted.
func Refused(err error) bool { return errors.As(err, new(*Error)) }

// Config is an accepted kubeconfig.
type Config struct {
	Server string   // host:port of the API server
	sums   [][]byte // of the certificates of its authority, sorted
}

// SameAuthority reports whether two kubeconfigs trust the same certificates, in whatever order.
func (c Config) SameAuthority(other Config) bool {
	return slices.EqualFunc(c.sums, other.sums, bytes.Equal)
}

// Accept reads a kubeconfig that others wrote. It has to name its API server by https, and to hold, in itself, the
// authority and a client certificate with its key, or a token, of its current context. A field by which it could run a
// program, read a file, lead the connection elsewhere, weaken it or act for another user is refused wherever it is. The
// error is an *Error.
func Accept(data []byte) (Config, error) {
	raw, err := parse(data)
	if err != nil {
		return Config{}, err
	}
	for _, c := range raw.Clusters {
		if err := checkCluster(c); err != nil {
			return Config{}, err
		}
	}
	for _, u := range raw.AuthInfos {
		if err := checkUser(u); err != nil {
			return Config{}, err
		}
	}
	cluster, user, err := current(raw)
	if err != nil {
		return Config{}, err
	}
	if user.Token == "" && (len(user.ClientCertificateData) == 0 || len(user.ClientKeyData) == 0) {
		return Config{}, damaged("the user of its current context has neither client-certificate-data with client-key-data " +
			"nor a token")
	}
	server, err := hostPort(cluster.Server)
	if err != nil {
		return Config{}, err
	}
	sums, err := authority(cluster.CertificateAuthorityData)
	return Config{Server: server, sums: sums}, err
}

func damaged(format string, args ...any) *Error { return &Error{text: fmt.Sprintf(format, args...)} }

// parse reads one document strictly, by the names that client-go knows: what it would read in another way, or not at
// all, is an error.
func parse(data []byte) (*clientcmdapi.Config, error) {
	if len(data) > MaxBytes {
		return nil, damaged("it has %d bytes; at most %d are read", len(data), MaxBytes)
	}
	if severalDocuments(data) {
		return nil, damaged("it has more than one YAML document")
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, damaged("it is not YAML: %v", err)
	}
	raw := &clientcmdapi.Config{}
	unknown, err := kjson.UnmarshalStrict(asJSON, raw)
	if err == nil {
		err = errors.Join(unknown...)
	}
	switch {
	case err != nil:
		return nil, damaged("it is not a kubeconfig: %v", err)
	case raw.Kind != "" && raw.Kind != "Config" || raw.APIVersion != "" && raw.APIVersion != "v1":
		return nil, damaged("it is a %s %s, not a kubeconfig", short(raw.APIVersion), short(raw.Kind))
	case len(raw.Extensions) > 0 || len(raw.Preferences.Extensions) > 0:
		return nil, refusal("extensions", "", "it is not known what reads them")
	}
	return raw, nil
}

// severalDocuments reports whether a YAML stream has a second document: some programs read it and others do not.
func severalDocuments(data []byte) bool {
	begun := false
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		switch {
		case bytes.HasPrefix(line, []byte("---")):
			if begun {
				return true
			}
			begun = len(text) > len("---")
		case len(text) > 0 && text[0] != '#' && text[0] != '%':
			begun = true
		}
	}
	return false
}

// forbidden is a field that a kubeconfig must not have.
type forbidden struct {
	field string
	there bool
	why   string
}

func first(of string, all ...forbidden) error {
	for _, f := range all {
		if f.there {
			return refusal(f.field, of, f.why)
		}
	}
	return nil
}

func refusal(field, of, why string) *Error {
	if of != "" {
		of = " of " + of
	}
	return &Error{Field: field, text: fmt.Sprintf("field %s%s is refused: %s", field, of, why)}
}

const (
	ofFiles   = "it names a file on this machine; only embedded data are accepted"
	asOther   = "the credentials would act for another user"
	ofNoUse   = "Kubernetes API servers have no basic authentication"
	extension = "it is not known what reads them"
)

func checkCluster(c clientcmdapi.NamedCluster) error {
	of := "cluster " + short(c.Name)
	return first(of,
		forbidden{"certificate-authority", c.Cluster.CertificateAuthority != "", ofFiles},
		forbidden{"insecure-skip-tls-verify", c.Cluster.InsecureSkipTLSVerify, "the API server would not be authenticated"},
		forbidden{"proxy-url", c.Cluster.ProxyURL != "", "the connection would go to another host"},
		forbidden{"tls-server-name", c.Cluster.TLSServerName != "",
			"another server's certificate would be taken for the API server's"},
		forbidden{"extensions", len(c.Cluster.Extensions) > 0, extension})
}

func checkUser(u clientcmdapi.NamedAuthInfo) error {
	of, a := "user "+short(u.Name), u.AuthInfo
	return first(of,
		forbidden{"exec", a.Exec != nil, "it would run a program on this machine"},
		forbidden{"auth-provider", a.AuthProvider != nil, "it would run code that fetches credentials"},
		forbidden{"tokenFile", a.TokenFile != "", "it would send the content of a file on this machine"},
		forbidden{"client-certificate", a.ClientCertificate != "", ofFiles},
		forbidden{"client-key", a.ClientKey != "", ofFiles},
		forbidden{"as", a.Impersonate != "", asOther},
		forbidden{"as-uid", a.ImpersonateUID != "", asOther},
		forbidden{"as-groups", len(a.ImpersonateGroups) > 0, asOther},
		forbidden{"as-user-extra", len(a.ImpersonateUserExtra) > 0, asOther},
		forbidden{"username", a.Username != "", ofNoUse},
		forbidden{"password", a.Password != "", ofNoUse},
		forbidden{"extensions", len(a.Extensions) > 0, extension})
}

// current is what the current context consists of. Two entries of one name are refused: programs differ in which one
// they take.
func current(raw *clientcmdapi.Config) (cluster clientcmdapi.Cluster, user clientcmdapi.AuthInfo, err error) {
	contexts, clusters, users := map[string]clientcmdapi.Context{}, map[string]clientcmdapi.Cluster{},
		map[string]clientcmdapi.AuthInfo{}
	for _, c := range raw.Contexts {
		if len(c.Context.Extensions) > 0 {
			return cluster, user, refusal("extensions", "context "+short(c.Name), extension)
		}
		contexts[c.Name] = c.Context
	}
	for _, c := range raw.Clusters {
		clusters[c.Name] = c.Cluster
	}
	for _, u := range raw.AuthInfos {
		users[u.Name] = u.AuthInfo
	}
	if len(contexts) < len(raw.Contexts) || len(clusters) < len(raw.Clusters) || len(users) < len(raw.AuthInfos) {
		return cluster, user, damaged("two of its contexts, clusters or users have one name")
	}
	context, known := contexts[raw.CurrentContext]
	if raw.CurrentContext == "" || !known {
		return cluster, user, damaged("its current-context %s does not exist", short(raw.CurrentContext))
	}
	cluster, knownCluster := clusters[context.Cluster]
	user, knownUser := users[context.AuthInfo]
	if !knownCluster || !knownUser {
		return cluster, user, damaged("its current context has no cluster or no user")
	}
	return cluster, user, nil
}

// hostPort is the address of an API server at its root, as host:port.
func hostPort(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" ||
		u.Path != "" && u.Path != "/" {
		return "", damaged("its server %s is not of the form https://HOST:PORT", short(server))
	}
	if u.Scheme != "https" {
		return "", refusal("server", "its current context",
			short(server)+" is not https, so that the API server would not be authenticated")
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), "443")), nil
}

// authority reads certificates.
func authority(encoded []byte) (sums [][]byte, err error) {
	for rest := bytes.TrimSpace(encoded); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, damaged("its certificate-authority-data are not certificates")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, damaged("its certificate-authority-data are not certificates: %v", err)
		}
		sum := sha256.Sum256(block.Bytes)
		sums = append(sums, sum[:])
	}
	if len(sums) == 0 {
		return nil, damaged("its cluster has no certificate-authority-data")
	}
	slices.SortFunc(sums, bytes.Compare)
	return slices.CompactFunc(sums, bytes.Equal), nil
}

// short quotes a text of a kubeconfig for a message.
func short(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
