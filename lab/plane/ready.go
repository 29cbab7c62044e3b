package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/proc"
)

const (
	// readyPoll is the interval of readiness checks: short, because every start waits for it.
	readyPoll = 50 * time.Millisecond
	// readyDeadline is generous: on two busy cores a kube-apiserver that is ready in 3 s alone may take 20.
	readyDeadline = 2 * time.Minute
	// logLines of a program go into the error when it does not become ready.
	logLines = 15
)

// await polls until ask succeeds. It gives up, with what was last seen and the end of the program's log, when the
// program ends, when readyDeadline has passed, or when ctx is done.
func await(ctx context.Context, service *proc.Service, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyDeadline, fmt.Errorf("not ready within %s", readyDeadline))
	defer cancel()
	before, _ := service.Ends()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	last := errors.New("not checked yet")
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // otherwise the error is that of the time-out alone
			last = err
		}
		if n, exit := service.Ends(); n > before {
			return unready(service, fmt.Errorf("it ended before it was ready (%s)", exit.Reason))
		}
		select {
		case <-ctx.Done():
			return unready(service, fmt.Errorf("%w; last seen: %v", context.Cause(ctx), last))
		case <-ticker.C:
		}
	}
}

func unready(service *proc.Service, reason error) error {
	tail := proc.Tail(service.Log(), logLines)
	if tail == "" {
		tail = "(empty)"
	}
	return fmt.Errorf("%s: %w; the end of its log %s:\n%s", service.Name(), reason, service.Log(), tail)
}

// probe requests a health endpoint; a status other than 200 is an error with the failed checks.
func probe(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var failed []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) == 0 {
		failed = []string{strings.TrimSpace(string(body))}
	}
	return fmt.Errorf("%s: %s: %s", url, res.Status, strings.Join(failed, ", "))
}

// probeClient is a client for servers whose certificates ca signed, with the client certificate pair.
func probeClient(ca []byte, pair pki.Pair) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("read authority: no certificate in PEM")
	}
	cert, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}},
		Timeout:   3 * time.Second,
	}, nil
}
