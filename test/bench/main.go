// Command bench compares Slipway with the Makefile of the guide that it replaces (guide.mk): both create the same
// cluster in the lab, alternating, each in a lab that is up and otherwise empty. It prints the times as the tables of
// docs/performance.md.
//
//	go run ./test/bench                     # three pairs at the fast and at the real pace: about an hour
//	go run ./test/bench -pace real -pairs 1 # one pair, about ten minutes
//	go run ./test/bench -from FILE          # the tables of an earlier comparison
//
// It needs Go, make and a shell; it builds clusterctl, helm and kubectl (test/bench/tools), Slipway and the lab's
// programs from source.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what a comparison is asked for.
type options struct {
	pairs int
	paces []string
	only  string
	from  string
	work  string
	keep  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	o := options{}
	flags.IntVar(&o.pairs, "pairs", 3, "pairs of runs at each pace")
	paces := flags.String("pace", "fast,real", "paces of the lab (--lab-latency), one after another")
	flags.StringVar(&o.only, "only", "", "run one side alone: make or slipway")
	flags.StringVar(&o.from, "from", "", "print the tables of the comparison in this file, and run nothing")
	flags.StringVar(&o.work, "work", "", "folder for programs, logs and figures; default: a new one for temporary files")
	flags.BoolVar(&o.keep, "keep", false, "keep the folders of the runs that ended well")
	management := flags.String("management", "", "create this management cluster in the lab and print its kubeconfig")
	lab := flags.String("lab", "", "folder of the lab that -management asks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.paces = strings.Split(*paces, ",")
	switch {
	case *management != "":
		return labIn(*lab).createManagement(ctx, *management, out)
	case o.from != "":
		runs, err := readRuns(o.from)
		if err != nil {
			return err
		}
		return printTables(out, runs)
	}
	if err := o.check(); err != nil {
		return err
	}
	return compare(ctx, o, out)
}

func (o options) check() error {
	for _, pace := range o.paces {
		if pace != "fast" && pace != "real" {
			return fmt.Errorf("-pace: %q is no pace of the lab: fast or real", pace)
		}
	}
	if o.only != "" && o.only != sideMake && o.only != sideSlipway {
		return fmt.Errorf("-only: %q is no side: %s or %s", o.only, sideMake, sideSlipway)
	}
	if o.pairs < 1 {
		return fmt.Errorf("-pairs: %d is no number of pairs", o.pairs)
	}
	return nil
}

// compare runs the pairs. What was measured is written after every run, so that an interrupted comparison keeps its
// figures.
func compare(ctx context.Context, o options, out io.Writer) error {
	w, err := prepare(ctx, o)
	if o.work == "" && w.dir != "" { // of what is in it, only the figures, and the runs that failed, are worth keeping
		defer func() { _ = os.RemoveAll(w.programs()) }()
	}
	if err != nil {
		return err
	}
	figures := filepath.Join(w.dir, "figures.json")
	runs, err := readRuns(figures)
	if err != nil {
		return err
	}
	var failed error
	for _, pace := range o.paces {
		first := pairsOf(runs, pace)
		for pair := range o.pairs {
			for _, side := range sidesOf(o.only, pair) {
				r, err := w.measure(ctx, pace, side)
				if err != nil {
					err = fmt.Errorf("%s at the %s pace: %w; the run's folder is kept in %s", side, pace, err, w.dir)
					fmt.Fprintln(os.Stderr, "bench:", err)
					if failed = errors.Join(failed, err); ctx.Err() != nil {
						return failed
					}
					continue // without its pair the other run is left out of the ratios
				}
				r.Pair = first + pair
				runs = append(runs, r)
				if err := writeRuns(figures, runs); err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%s pace, pair %d, %s: Ready nodes after %.1f s, settled pivot after %.1f s (load %s)\n",
					pace, r.Pair+1, side, r.Marks[markNodes], r.Marks[markPivot], r.Load)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "figures:", figures)
	return errors.Join(failed, printTables(out, runs))
}

// sidesOf is the order of a pair: each side is first in every other pair, so that neither profits from what the machine
// has cached or how it is loaded.
func sidesOf(only string, pair int) []string {
	if only != "" {
		return []string{only}
	}
	sides := []string{sideMake, sideSlipway}
	if pair%2 == 1 {
		slices.Reverse(sides)
	}
	return sides
}

// within bounds one side's run, which takes two to five minutes.
const within = 25 * time.Minute
