package kube

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/registry"
	"helm.sh/helm/v3/pkg/repo"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"sigs.k8s.io/yaml"
)

const (
	ociScheme = "oci://"
	// downloadTimeout bounds one file of a chart repository; Cilium's index, the largest met, has 3 MB.
	downloadTimeout = 2 * time.Minute
	// maxDownload is far above any chart and index, and keeps a wrong address from filling the memory.
	maxDownload = 64 << 20
)

// ChartSource says where a chart comes from.
type ChartSource struct {
	Repository string // http(s):// for a classic repository, oci:// for the folder in a registry
	Name       string
	Version    string // exact
}

// String is "cilium 1.18.6 of https://helm.cilium.io".
func (s ChartSource) String() string {
	return s.Name + " " + s.Version + " of " + WithoutCredentials(s.Repository)
}

// hiddenCredentials replace a user name and a password.
const hiddenCredentials = "xxxxx"

// WithoutCredentials is an address that can be shown: without the password in it and without the user name, which may
// be a token. An address that cannot be read loses all that may be one.
func WithoutCredentials(address string) string {
	if u, err := url.Parse(address); err == nil && u.User == nil {
		return address
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return address
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		return scheme + "://" + hiddenCredentials + rest[at:]
	}
	if at := strings.LastIndex(path, "@"); at >= 0 { // a password with a slash in it
		return scheme + "://" + hiddenCredentials + path[at:]
	}
	return address
}

// HideCredentials takes them out of the address in an error of an HTTP client, which only hides the password.
func HideCredentials(err error) error {
	told, is := err.(*url.Error)
	if !is {
		return err
	}
	hidden := *told
	hidden.URL = WithoutCredentials(told.URL)
	return &hidden
}

// LoadChart downloads a chart into memory. It uses no cache, configuration or credentials of a helm command on the same
// machine; dir is a folder for the little that the registry client insists on, log takes its messages.
func LoadChart(ctx context.Context, s ChartSource, dir string, log io.Writer) (*chart.Chart, error) {
	archive, err := DownloadChart(ctx, s, dir, log)
	if err != nil {
		return nil, err
	}
	c, err := ReadChart(archive)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", s, err)
	}
	return c, nil
}

// DownloadChart is LoadChart for the archive as it was served.
func DownloadChart(ctx context.Context, s ChartSource, dir string, log io.Writer) (archive []byte, err error) {
	if s.Registry() {
		archive, err = pullChart(ctx, s, dir, log)
	} else {
		archive, err = downloadChart(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("download chart %s: %w", s, err)
	}
	return archive, nil
}

// digestError means that a chart is not the one that its repository describes.
type digestError struct{ what string }

func (e *digestError) Error() string { return e.what }

// CorruptChart reports whether a chart was received and is not the one that its repository or registry describes.
func CorruptChart(err error) bool {
	_, wrong := errors.AsType[*digestError](err)
	for _, is := range []error{content.ErrMismatchedDigest, content.ErrInvalidDescriptorSize, content.ErrTrailingData} {
		wrong = wrong || errors.Is(err, is) // the registry client's
	}
	return wrong
}

// pullChart takes a chart from a registry.
func pullChart(ctx context.Context, s ChartSource, dir string, log io.Writer) ([]byte, error) {
	client, ref, err := s.registry(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	result, err := client.Pull(ref)
	if err != nil {
		return nil, err
	}
	return result.Chart.Data, nil
}

// registry is the client of the registry that has a chart, and what the chart is called there.
func (s ChartSource) registry(ctx context.Context, dir string, log io.Writer) (*registry.Client, string, error) {
	ref := strings.TrimPrefix(strings.TrimSuffix(s.Repository, "/"), ociScheme) + "/" + s.Name + ":" + s.Version
	options := []registry.ClientOption{
		registry.ClientOptWriter(log),
		registry.ClientOptCredentialsFile(filepath.Join(dir, "registry.json")),
		registry.ClientOptHTTPClient(&http.Client{Timeout: downloadTimeout, Transport: withContext{ctx}}),
	}
	if host, _, _ := strings.Cut(ref, "/"); onThisMachine(host) {
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	return client, ref, err
}

// onThisMachine tells whether a registry, HOST or HOST:PORT, is on this machine. Such a one is asked without TLS, as by
// other clients of registries.
func onThisMachine(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// InRegistry reports whether a registry has the chart, without taking it. dir and log are those of LoadChart.
func (s ChartSource) InRegistry(ctx context.Context, dir string, log io.Writer) (bool, error) {
	client, ref, err := s.registry(ctx, dir, log)
	if err != nil {
		return false, err
	}
	switch _, err := client.Resolve(ref); {
	case errors.Is(err, errdef.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for %s: %w", ref, err)
	}
	return true, nil
}

// Registry tells a registry from a classic repository.
func (s ChartSource) Registry() bool { return strings.HasPrefix(s.Repository, ociScheme) }

// withContext ends the registry client's requests with ctx, which its own methods do not take.
type withContext struct{ ctx context.Context }

func (t withContext) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(t.ctx, cancel)
	resp, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
	if err == nil && passing(resp.StatusCode) {
		resp.Body.Close()
		err = &statusError{WithoutCredentials(r.URL.String()), resp.Status} // the client's own error would be a mere text
	}
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, done: func() { stop(); cancel() }}
	return resp, nil
}

type body struct {
	io.ReadCloser
	done func()
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// downloadChart takes a chart from a classic repository: its index names the file and the file's hash.
func downloadChart(ctx context.Context, s ChartSource) ([]byte, error) {
	raw, err := Download(ctx, strings.TrimSuffix(s.Repository, "/")+"/index.yaml")
	if err != nil {
		return nil, err
	}
	index := &repo.IndexFile{}
	if err := yaml.Unmarshal(raw, index); err != nil {
		return nil, fmt.Errorf("read the repository's index: %w", err)
	}
	index.SortEntries()
	entry, err := index.Get(s.Name, s.Version)
	if err != nil {
		return nil, fmt.Errorf("the repository has no such version: %w", err)
	}
	if entry.Version != s.Version || len(entry.URLs) == 0 {
		return nil, fmt.Errorf("the repository has no such version, the nearest is %s", entry.Version)
	}
	address, err := repo.ResolveReferenceURL(s.Repository, entry.URLs[0])
	if err != nil {
		return nil, err
	}
	archive, err := Download(ctx, address)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(archive); entry.Digest != "" && !strings.EqualFold(strings.TrimPrefix(entry.Digest, "sha256:"),
		hex.EncodeToString(sum[:])) {
		return nil, &digestError{fmt.Sprintf("%s is not the file that the repository's index describes (sha256 %x instead "+
			"of %s)", WithoutCredentials(address), sum, entry.Digest)}
	}
	return archive, nil
}

// Download gets what is at an address. An error that may pass is Transient; none has the credentials of the address.
func Download(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, HideCredentials(err)
	}
	defer resp.Body.Close()
	if passing(resp.StatusCode) {
		return nil, &statusError{WithoutCredentials(address), resp.Status}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", WithoutCredentials(address), resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDownload))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", WithoutCredentials(address), err)
	}
	return data, nil
}

// statusError is an answer of a server that may answer otherwise soon.
type statusError struct{ address, status string }

func (e *statusError) Error() string { return "get " + e.address + ": " + e.status }

func passing(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// Transient reports whether the same request may succeed in a moment: the network failed, or the server said
// that it is not well. A certificate that does not hold will not hold then either.
func Transient(err error) bool {
	var status *statusError
	var network net.Error // also what net/http says of any request without an answer
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate), errors.As(err, new(*ExpiredError)):
		return false
	case errors.As(err, &status), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return errors.As(err, &network)
}
