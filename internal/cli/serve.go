package cli

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/serve"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
)

// runServe answers over HTTP until it is interrupted.
func runServe(ctx context.Context, c *call, o serve.Options) error {
	o.Folders, o.Log, o.Flags = c.Targets[1:], serveLog(c), flagsOfRuns
	o.Listening = func(s serve.Serving) error { return tellServing(c, s) }
	return serve.Serve(ctx, c.caller(), c.Request, o)
}

// flagsOfRuns are the flags of a command that runs steps of the same cluster, in the same environment.
func flagsOfRuns(o session.Options) []string {
	words := sharedFlags(arguments{Request: session.Request{Options: o}}, []string{targetAll})
	for name, value := range map[string]string{"latency": o.LabLatency, "api": o.LabAPI} {
		if defaults := map[string]string{"latency": "fast", "api": lab.NewestAPI}; o.Lab && value != defaults[name] {
			words = append(words, "--lab-"+name, value)
		}
	}
	if o.LabUntil > 0 {
		words = append(words, "--lab-until-gone", strconv.Itoa(o.LabUntil))
	}
	if o.Yes {
		words = append(words, "--yes")
	}
	if o.Parallel > 0 {
		words = append(words, "--parallel", strconv.Itoa(o.Parallel))
	}
	return words
}

// serveLog writes what serve does on standard error.
func serveLog(c *call) *slog.Logger {
	out := c.hide.Writer(c.stderr)
	if c.Output == "json" {
		return slog.New(slog.NewJSONHandler(out, nil))
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// tellServing says where serve listens, and where the token is, which it does not print.
func tellServing(c *call, s serve.Serving) error {
	return c.printLine(s, func(io.Writer, int) error {
		err := c.say("%s serve: %s at %s", platform.Program, strings.Join(s.Clusters, ", "), s.Address)
		if err == nil && s.TokenFile != "" {
			err = c.say("log in with the token in %s", s.TokenFile)
		}
		return err
	})
}

func newServeCommand(c *call) *cobra.Command {
	var own serve.Options
	cmd := c.command("serve [FOLDER…]", groupOther,
		"an HTTP API and a page to watch and start runs; of each folder's bootstrap.yaml, "+
			"default: the configured cluster",
		func(ctx context.Context, c *call) error { return runServe(ctx, c, own) })
	f := cmd.Flags()
	f.StringVar(&own.Listen, "listen", "127.0.0.1:8087", "listen on `HOST:PORT`")
	f.StringVar(&own.Probes, "listen-probes", "",
		"also answer /healthz and /readyz, and nothing else, on `HOST:PORT`, without TLS")
	f.StringVar(&own.TokenFile, "token-file", "", "read the bearer token of operators from `FILE` "+
		"(default: serve/token in the state folder, generated at the first start)")
	f.StringVar(&own.ReaderTokenFile, "reader-token-file", "",
		"accept also the bearer token in `FILE`, for readers: who cannot start, cancel or resume runs")
	f.StringVar(&own.Cert, "tls-cert", "", "serve TLS with the certificate in `FILE` (PEM)")
	f.StringVar(&own.Key, "tls-key", "", "private key of the certificate, in `FILE` (PEM)")
	f.StringArrayVar(&own.Hosts, "allowed-host", nil,
		"also answer requests for the host `NAME`, besides localhost and the names in the certificate (repeatable)")
	f.StringVar(&own.Issuer, "oidc-issuer", "", "accept ID tokens of the OpenID Connect issuer `URL` as bearer tokens")
	f.StringVar(&own.ClientID, "oidc-client-id", "", "client `ID` that the ID tokens have to be issued for")
	f.StringArrayVar(&own.Operators.Users, "oidc-allow", nil,
		"allow the `USER` of the issuer: a verified e-mail address, or a subject (repeatable)")
	f.StringArrayVar(&own.Operators.Groups, "oidc-allow-group", nil,
		"allow users of the `GROUP`, from the claim groups of their ID tokens (repeatable)")
	f.StringArrayVar(&own.Readers.Users, "oidc-reader", nil, "allow the `USER` of the issuer as a reader (repeatable)")
	f.StringArrayVar(&own.Readers.Groups, "oidc-reader-group", nil, "allow users of the `GROUP` as readers (repeatable)")
	f.BoolVar(&own.Resume, "resume", false, "at the start, resume a run that was interrupted when an earlier serve ended")
	f.BoolVar(&own.StopRuns, "stop-runs", false, "interrupt runs when serve ends, as in a container (default: they continue)")
	return cmd
}
