// Command cmd runs the crash suite: `make crash`. It continues an interrupted suite, prints the figures of
// docs/architecture.md, and exits with 1 if a case failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/test/crash"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

type options struct {
	work, only string
	list       bool
	again      bool
	mutations  bool
	most       time.Duration
}

func run(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	var o options
	flag.StringVar(&o.work, "work", filepath.Join(cache, "slipway", "crash"),
		"folder for the ledger and the saved labs, a folder for each state of the code")
	flag.StringVar(&o.only, "only", "", "regular expression of the cases to run: '^chain', 'single pivot: torn', 'fault'")
	flag.BoolVar(&o.list, "list", false, "list the cases with their results, and run none")
	flag.BoolVar(&o.again, "again", false, "run cases again that failed or whose effect never came")
	flag.BoolVar(&o.mutations, "mutations", false,
		"break a copy of the code in one place after the other, and see whether the tests notice")
	flag.DurationVar(&o.most, "for", 0, "begin no case after this long; the next call continues")
	flag.Parse()
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	source, err := crash.Source(here)
	if err != nil {
		return err
	}
	if o.mutations {
		return crash.TryMutations(ctx, source, o.only, os.Stdout)
	}
	return suite(ctx, source, o)
}

// suite prepares the stages and runs every case that has no result yet.
func suite(ctx context.Context, source string, o options) (err error) {
	key, err := crash.Key(source)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.work, key)
	release, err := crash.Claim(ctx, o.work, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	wanted, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	ledger, err := crash.OpenLedger(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "suite.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	say := func(format string, args ...any) {
		fmt.Fprintf(io.MultiWriter(os.Stdout, log), time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}
	command := filepath.Join(dir, "bootstrap")
	if err := crash.Build(ctx, source, command); err != nil {
		return err
	}
	session, err := crash.Open(command, source, filepath.Join(dir, "state"), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	s := &crash.Suite{Session: session, Dir: dir, Ledger: ledger, Say: say}
	say("the code is %s; ledger, saved labs and log lie in %s", key, dir)
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	effects, err := s.Effects()
	if err != nil {
		return err
	}
	cases := crash.Enumerate(effects, crash.Full())
	if o.list {
		crash.PrintCases(os.Stdout, cases, ledger)
	} else if err := s.RunAll(ctx, cases, crash.Choice{Only: wanted, Again: o.again, For: o.most}); err != nil &&
		!errors.Is(err, crash.ErrTime) {
		return err
	}
	figures := crash.Count(effects, cases, ledger)
	crash.PrintFailures(os.Stdout, append(figures.Failed, figures.Skipped...))
	if err := figures.Print(os.Stdout); err != nil {
		return err
	}
	if len(figures.Failed) > 0 {
		return fmt.Errorf("%d cases failed; the output of each run is in %s", len(figures.Failed), log.Name())
	}
	return nil
}
