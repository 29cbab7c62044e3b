package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Options are the choices of Serve. Errors name the flags of the command.
type Options struct {
	Folders         []string // each with the bootstrap.yaml of a cluster; empty: the cluster of the request
	Listen          string
	Probes          string // address to listen on for probes besides; empty: none
	TokenFile       string
	ReaderTokenFile string
	Cert, Key       string
	Hosts           []string // names under which it is reached besides
	Issuer          string
	ClientID        string
	Operators       auth.Members // users of the issuer
	Readers         auth.Members
	Resume          bool // runs that were interrupted when an earlier process, or its machine, ended
	StopRuns        bool // when Serve ends

	// Flags are those that lead the command to a cluster: for paths, the lab and the choices of its runs. Required.
	Flags     func(session.Options) []string
	Listening func(Serving) error // is called once, before the first request is answered. Required.
	Log       *slog.Logger        // Required.
}

// stopWithin is how long all runs together have to end in good order where Serve ends them.
const stopWithin = 25 * time.Second

// Serving is where Serve listens.
type Serving struct {
	Kind      string   `json:"kind"` // "serving"
	Address   string   `json:"address"`
	Probes    string   `json:"probes,omitempty"`    // of the listener for probes; absent: there is none
	TokenFile string   `json:"tokenFile,omitempty"` // that holds the bearer token; absent: there is none
	Clusters  []string `json:"clusters"`
}

// Serve answers over HTTP until the context ends. Runs that it has started go on then, without StopRuns.
func Serve(ctx context.Context, c *session.Caller, q session.Request, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	served, err := readClusters(ctx, c, q, o.Folders)
	if err != nil {
		return err
	}
	var cert *certificate
	if o.Cert != "" {
		cert, err = readCertificate(settings.InFolder(c.WorkDir, o.Cert), settings.InFolder(c.WorkDir, o.Key))
		if err != nil {
			return err
		}
	}
	who, tokenFile, err := o.authentication(c, served[0].state)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program that runs: %w", err)
	}
	listener, probes, err := o.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	if probes != nil {
		defer probes.Close()
	}
	clusters, err := openClusters(ctx, c, served, self, o)
	defer func() {
		for _, one := range clusters {
			err = errors.Join(err, one.Close())
		}
	}()
	if err != nil {
		return err
	}
	who.TLS = cert != nil
	options := serverOptions{Clusters: clusters, Auth: auth.New(who), Hosts: auth.Loopback(), Hide: c.Hide, Log: o.Log,
		Version: session.Version(), Learn: learnSecrets(c, served, tokenFile, o.ReaderTokenFile)}
	scheme := "http"
	if cert != nil {
		scheme, options.TLS = "https", cert.config()
		options.Hosts = append(options.Hosts, cert.hosts()...)
	}
	for _, name := range o.Hosts {
		options.Hosts = append(options.Hosts, strings.ToLower(name))
	}
	s := newServer(options)
	if o.Resume {
		resumeInterrupted(clusters, o.Log)
	}
	at := Serving{Kind: "serving", Address: scheme + "://" + listener.Addr().String(), TokenFile: tokenFile}
	for _, one := range served {
		at.Clusters = append(at.Clusters, one.Cfg.ClusterName)
	}
	if probes != nil {
		at.Probes = "http://" + probes.Addr().String()
	}
	if err := o.Listening(at); err != nil {
		return err
	}
	err = s.Serve(ctx, listener, probes)
	if o.StopRuns {
		interruptAll(clusters, stopWithin)
		return err
	}
	for _, one := range clusters {
		if at, _ := one.AtWork(); at != "" {
			o.Log.Info("a run goes on without serve, which finds it again", "cluster", one.Name, "run", at)
		}
	}
	return err
}

// check refuses flags that do not go together, and to be reached from other machines without protection.
func (o Options) check() error {
	alone, err := isLoopback("--listen", o.Listen)
	if err == nil && o.Probes != "" {
		_, err = isLoopback("--listen-probes", o.Probes)
	}
	if err == nil {
		err = o.checkIssuer()
	}
	switch {
	case err != nil:
		return err
	case (o.Cert == "") != (o.Key == ""):
		return usage.Errorf("--tls-cert and --tls-key go together: name both, or none")
	case !alone && o.Cert == "":
		return usage.Errorf("--listen %s is reached from other machines, and tokens would be readable on the way: "+
			"name a certificate with --tls-cert and --tls-key, or listen on 127.0.0.1", o.Listen)
	case !alone && o.TokenFile == "" && o.Issuer == "":
		return usage.Errorf("--listen %s is reached from other machines: name who may use it with --token-file or "+
			"--oidc-issuer, or listen on 127.0.0.1", o.Listen)
	}
	return nil
}

// checkIssuer refuses an issuer that is not protected, or whose users are not named.
func (o Options) checkIssuer() error {
	named := slices.Concat(o.Operators.Users, o.Operators.Groups, o.Readers.Users, o.Readers.Groups)
	switch {
	case (o.Issuer == "") != (o.ClientID == ""):
		return usage.Errorf("--oidc-issuer and --oidc-client-id go together: name both, or none")
	case o.Issuer == "" && len(named) > 0:
		return usage.Errorf("--oidc-allow, --oidc-allow-group, --oidc-reader and --oidc-reader-group go with --oidc-issuer")
	case o.Issuer == "":
		return nil
	case len(named) == 0:
		return usage.Errorf("--oidc-issuer alone lets in every user of the issuer: name who may with --oidc-allow or " +
			"--oidc-reader, an e-mail address or a subject, or with --oidc-allow-group or --oidc-reader-group")
	case slices.Contains(named, ""):
		return usage.Errorf("a user or group of --oidc-issuer is empty")
	}
	return auth.CheckIssuer(o.Issuer)
}

// listen listens for requests, and for probes; nil: there are none.
func (o Options) listen() (requests, probes net.Listener, err error) {
	requests, err = net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for requests (--listen): %w", err)
	}
	if o.Probes == "" {
		return requests, nil, nil
	}
	probes, err = net.Listen("tcp", o.Probes)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen for probes (--listen-probes): %w", err), requests.Close())
	}
	return requests, probes, nil
}

// authentication is who may use the API, and the file with the token of operators; empty: there is none. What is given
// is read before a token is made.
func (o Options) authentication(c *session.Caller, state statedir.Dir) (who auth.Options, tokenFile string,
	err error) {
	if o.Issuer != "" {
		who.OIDC = &auth.OIDC{Issuer: o.Issuer, ClientID: o.ClientID, Operators: o.Operators, Readers: o.Readers}
	}
	read := func(path string, how func(string) (auth.Token, string, error)) (*auth.Token, error) {
		token, plain, err := how(path)
		if err != nil {
			return nil, err
		}
		c.Hide.Learn(plain)
		return &token, nil
	}
	if o.ReaderTokenFile != "" {
		who.ReaderToken, err = read(settings.InFolder(c.WorkDir, o.ReaderTokenFile), auth.ReadToken)
		if err != nil {
			return who, "", err
		}
	}
	switch {
	case o.TokenFile != "":
		tokenFile = settings.InFolder(c.WorkDir, o.TokenFile)
		who.Token, err = read(tokenFile, auth.ReadToken)
	case o.Issuer == "":
		tokenFile = state.Path(filepath.Join(statedir.ServeFolder, "token"))
		who.Token, err = read(tokenFile, auth.EnsureToken)
	}
	if err == nil && who.Token != nil && who.ReaderToken != nil && *who.Token == *who.ReaderToken {
		err = usage.Errorf("the token of readers in %s (--reader-token-file) is that of operators in %s: replace one",
			o.ReaderTokenFile, tokenFile)
	}
	return who, tokenFile, err
}

// resumeInterrupted resumes the runs that were interrupted when an earlier process, or its machine, ended.
func resumeInterrupted(clusters []*cluster, log *slog.Logger) {
	for _, one := range clusters {
		run, resumed, err := one.ResumeInterrupted()
		switch {
		case err != nil:
			log.Error("the interrupted run is not resumed", "cluster", one.Name, "error", err)
		case resumed:
			log.Info("the interrupted run is resumed", "cluster", one.Name, "run", run.ID, "resumes", run.Resumes)
		}
	}
}
