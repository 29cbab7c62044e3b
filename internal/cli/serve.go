package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/serve"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/serve/work"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// serveOptions are the flags of serve.
type serveOptions struct {
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
	Resume          bool
	StopRuns        bool
}

// stopWithin is how long all runs together have to end in good order where serve ends them.
const stopWithin = 25 * time.Second

// serving is what serve prints when it listens.
type serving struct {
	Kind      string   `json:"kind"` // "serving"
	Address   string   `json:"address"`
	Probes    string   `json:"probes,omitempty"`    // of the listener for probes; absent: there is none
	TokenFile string   `json:"tokenFile,omitempty"` // that holds the bearer token; absent: there is none
	Clusters  []string `json:"clusters"`
}

// runServe answers over HTTP until it is interrupted. Runs that it has started go on then.
func runServe(ctx context.Context, c *console, a arguments, o serveOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	served, err := servedClusters(ctx, c, a)
	if err != nil {
		return err
	}
	var cert *serve.Certificate
	if o.Cert != "" {
		cert, err = serve.ReadCertificate(settings.InFolder(c.workDir, o.Cert), settings.InFolder(c.workDir, o.Key))
		if err != nil {
			return err
		}
	}
	who, tokenFile, err := serveAuth(c, o, served[0].state)
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
	log := serveLog(c, a)
	clusters, err := openClusters(ctx, c, served, self, log)
	defer func() {
		for _, one := range clusters {
			err = errors.Join(err, one.Close())
		}
	}()
	if err != nil {
		return err
	}
	who.TLS = cert != nil
	authority, err := auth.New(who)
	if err != nil {
		return err
	}
	options := serve.Options{Clusters: clusters, Auth: authority, Hosts: auth.Loopback(), Version: session.Version(),
		Hide: c.hide, Learn: learnSecrets(c, served, tokenFile, o.ReaderTokenFile), Log: log}
	scheme := "http"
	if cert != nil {
		scheme, options.TLS = "https", cert.Config()
		options.Hosts = append(options.Hosts, cert.Hosts()...)
	}
	for _, name := range o.Hosts {
		options.Hosts = append(options.Hosts, strings.ToLower(name))
	}
	s := serve.New(options)
	if o.Resume {
		resumeServed(clusters, log)
	}
	at := serving{Kind: "serving", Address: scheme + "://" + listener.Addr().String(), TokenFile: tokenFile,
		Clusters: namesOf(served)}
	if probes != nil {
		at.Probes = "http://" + probes.Addr().String()
	}
	if err := tellServing(c, a, at); err != nil {
		return err
	}
	err = s.Serve(ctx, listener, probes)
	if o.StopRuns {
		work.InterruptAll(clusters, stopWithin)
		return err
	}
	for _, one := range clusters {
		if at, _ := one.AtWork(); at != "" {
			log.Info("a run goes on without serve, which finds it again", "cluster", one.Name, "run", at)
		}
	}
	return err
}

// check refuses flags that do not go together, and to be reached from other machines without protection.
func (o serveOptions) check() error {
	alone, err := serve.IsLoopback("--listen", o.Listen)
	if err == nil && o.Probes != "" {
		_, err = serve.IsLoopback("--listen-probes", o.Probes)
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
func (o serveOptions) checkIssuer() error {
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
func (o serveOptions) listen() (requests, probes net.Listener, err error) {
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

// servedCluster is a cluster that serve was asked for.
type servedCluster struct {
	given   arguments
	cfg     settings.Configuration
	state   statedir.Dir
	targets []string
}

// servedClusters reads the configurations, and touches nothing.
func servedClusters(ctx context.Context, c *console, a arguments) ([]servedCluster, error) {
	folders := a.Targets[1:]
	switch {
	case len(folders) > 0 && a.Options.Config != "":
		return nil, usage.Errorf("--config does not go with folders: each has its bootstrap.yaml")
	case len(folders) > 1 && a.Options.StateDir != "":
		return nil, usage.Errorf("--state-dir is the folder of one cluster, and %d are named", len(folders))
	}
	given := []arguments{a}
	if len(folders) > 0 {
		given = nil
	}
	for _, folder := range folders {
		one := a
		one.workDir = settings.InFolder(c.workDir, folder)
		one.Options.Config = filepath.Join(one.workDir, "bootstrap.yaml")
		if _, err := os.Stat(one.Options.Config); err != nil {
			return nil, usage.Errorf("folder %s is of no cluster: %w", folder, err)
		}
		given = append(given, one)
	}
	var all []servedCluster
	for _, one := range given {
		s, err := readServed(ctx, c, one)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.cfg.ClusterName == s.cfg.ClusterName || other.state == s.state {
				return nil, usage.Errorf("folders %s and %s are both of cluster %s: give each clusterName in its "+
					"bootstrap.yaml, and set no CLUSTER_NAME", other.given.workDir, s.given.workDir, s.cfg.ClusterName)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// readServed reads the configuration of one cluster.
func readServed(ctx context.Context, c *console, a arguments) (s servedCluster, err error) {
	a.workDir = cmp.Or(a.workDir, c.workDir)
	s.given = a
	if s.cfg, err = loadConfig(a, c.environment); err != nil {
		return s, err
	}
	from := a.workDir
	if a.Options.StateDir != "" {
		from = c.workDir // where --state-dir was written
	}
	s.state = statedir.New(a.Options.StateDir, s.cfg.ClusterName, from)
	if err := s.state.CheckOwner(ctx, statedir.Owner{Cluster: s.cfg.ClusterName, Namespace: s.cfg.Namespace}); err != nil {
		return s, err
	}
	if err := session.RefuseOtherEnvironment(s.state, a.Options.Lab); err != nil {
		return s, err
	}
	b, err := c.cluster(a, s.cfg).PlanOffline()
	if err != nil {
		return s, err
	}
	s.targets = []string{targetBootstrap, targetAll}
	for _, step := range b.Plan.Graph.Steps() {
		s.targets = append(s.targets, step.Name)
	}
	return s, nil
}

// openClusters opens the clusters. Those that are open are in the answer where it fails, too.
func openClusters(ctx context.Context, c *console, served []servedCluster, self string,
	log *slog.Logger) (all []*work.Cluster, err error) {
	for _, s := range served {
		words, env := s.commandLine(c)
		one, err := work.Open(ctx, work.Options{Name: s.cfg.ClusterName, Dir: s.given.workDir, State: s.state,
			Environment: s.given.Options.Environment(), Executable: self, Arguments: words, Env: env, Targets: s.targets,
			Hide: c.hide, Log: log})
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// commandLine is what a command needs to get to the cluster from its folder: what was given to this one. A value that
// is not to be read in a list of processes is in the environment.
func (s servedCluster) commandLine(c *console) (words, env []string) {
	o := s.given.Options
	o.StateDir = string(s.state)
	for _, path := range []*string{&o.Config, &o.Dir, &o.LabDir, &o.LabImages} {
		if *path != "" {
			*path = settings.InFolder(c.workDir, *path)
		}
	}
	words = sharedFlags(o, []string{targetAll})
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
	environment := map[string]string{}
	for name, value := range c.environment {
		environment[name] = value
	}
	for _, v := range s.given.Values {
		if shown := v.Variable.Name + "=" + v.Value; v.Shown() == shown {
			words = append(words, shown)
		} else {
			environment[v.Variable.Name] = v.Value
		}
	}
	for name, value := range environment {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return words, env
}

// serveAuth is who may use serve, and the file with the token of operators; empty: there is none. What is given is read
// before a token is made.
func serveAuth(c *console, o serveOptions, state statedir.Dir) (who auth.Options, tokenFile string, err error) {
	if o.Issuer != "" {
		who.OIDC = &auth.OIDC{Issuer: o.Issuer, ClientID: o.ClientID, Operators: o.Operators, Readers: o.Readers}
	}
	read := func(path string, how func(string) (auth.Token, string, error)) (*auth.Token, error) {
		token, plain, err := how(path)
		if err != nil {
			return nil, err
		}
		c.hide.Learn(plain)
		return &token, nil
	}
	if o.ReaderTokenFile != "" {
		who.ReaderToken, err = read(settings.InFolder(c.workDir, o.ReaderTokenFile), auth.ReadToken)
		if err != nil {
			return who, "", err
		}
	}
	switch {
	case o.TokenFile != "":
		tokenFile = settings.InFolder(c.workDir, o.TokenFile)
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

// learnSecrets has the secrets of the clusters' files hidden, now and whenever it is called.
func learnSecrets(c *console, served []servedCluster, tokenFiles ...string) func() {
	whole, folders := []string{}, []string{}
	for _, path := range tokenFiles {
		if path != "" {
			whole = append(whole, settings.InFolder(c.workDir, path))
		}
	}
	for _, s := range served {
		folders = append(folders, string(s.state))
		for _, path := range []string{s.cfg.TokenFile, s.cfg.GitTokenFile, s.cfg.BackupPassphraseFile,
			s.cfg.BackupIdentityFile, s.cfg.BackupAuthenticationKeyFile, s.cfg.StateIdentityFile} {
			if path = settings.AtHome(path, c.environment["HOME"]); path != "" {
				whole = append(whole, settings.InFolder(s.given.workDir, path))
			}
		}
		c.hide.Learn(s.cfg.Passwords()...)
	}
	for _, name := range child.SecretVariables() {
		c.hide.Learn(c.environment[name])
	}
	return redact.NewWatch(c.hide, whole, folders).Learn
}

// resumeServed resumes the runs that were interrupted when an earlier serve, or its machine, ended.
func resumeServed(clusters []*work.Cluster, log *slog.Logger) {
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

// serveLog writes what serve does on standard error.
func serveLog(c *console, a arguments) *slog.Logger {
	out := c.hide.Writer(c.stderr)
	if a.Options.Output == "json" {
		return slog.New(slog.NewJSONHandler(out, nil))
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// tellServing says where serve listens, and where the token is, which it does not print.
func tellServing(c *console, a arguments, s serving) error {
	if a.Options.Output == "json" {
		return ui.PrintJSONLine(c.stdout, s)
	}
	_, err := fmt.Fprintf(c.stdout, "%s serve: %s at %s\n", platform.Program, strings.Join(s.Clusters, ", "), s.Address)
	if err == nil && s.TokenFile != "" {
		_, err = fmt.Fprintf(c.stdout, "log in with the token in %s\n", s.TokenFile)
	}
	return err
}

func namesOf(served []servedCluster) (names []string) {
	for _, s := range served {
		names = append(names, s.cfg.ClusterName)
	}
	return names
}

func newServeCommand(in *invocation) *cobra.Command {
	var own serveOptions
	cmd := in.command("serve [FOLDER…]", groupOther,
		"an HTTP API and a page to watch and start runs; of each folder's bootstrap.yaml, "+
			"default: the configured cluster",
		func(ctx context.Context, c *console, a arguments) error { return runServe(ctx, c, a, own) })
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
