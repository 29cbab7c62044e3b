package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/grpclog"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/environment"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/originals"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
)

// serve runs the lab in the foreground.
func serve(ctx context.Context, args []string) error {
	cfg, untilGone, err := parseServe(args)
	if err != nil {
		return usageError{err}
	}
	ctx, end, err := endWith(ctx, untilGone)
	if err != nil {
		return err
	}
	defer end()
	// etcd's client logs every connection that it gives up. The callers report the errors that matter.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	return netns.Enter(ctx, nil, func(ctx context.Context, n netns.Network) error {
		cfg.Network = n
		return environment.Run(ctx, cfg)
	})
}

// endWith returns a context that is done when the process with an id has ended; 0: no process.
func endWith(ctx context.Context, pid int) (context.Context, context.CancelFunc, error) {
	live, end := context.WithCancel(ctx)
	// The daemon's PID namespace hides the host's process ids. The process outside of it watches this one.
	if pid == 0 || netns.Inside() {
		return live, end, nil
	}
	gone, err := proc.Gone(pid)
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("--until-gone: %w", err)
	}
	go func() {
		select {
		case <-gone:
			end()
		case <-live.Done():
		}
	}()
	return live, end, nil
}

func parseServe(args []string) (cfg environment.Config, untilGone int, err error) {
	flags := newFlags("serve")
	dir := flags.String("dir", "", "folder of the lab (required)")
	bin := flags.String("bin", "", "folder of the upstream programs (required)")
	givenFlags(flags, &cfg.Kubernetes, &cfg.Core)
	flux := flags.String("flux", "", "folder of the programs of Flux's controllers; they may be built later")
	gitea := flags.String("gitea", "", "folder of Gitea's program; it may be built later")
	latency := flags.String("latency", string(environment.FastLatency), "how long simulated things take: fast or real")
	api := flags.String("api", string(cloud.APINovember2026), "date of the simulated Hetzner API: 2026-02 or 2026-11")
	images := flags.String("images", "", "YAML file: programs that run for images")
	released := flags.String("originals", "", "JSON file: released programs in the place of stand-ins")
	flags.IntVar(&untilGone, "until-gone", 0, "end when the process with this id has ended")
	if err := parse(flags, args); err != nil {
		return cfg, 0, err
	}
	if *dir == "" || *bin == "" {
		return cfg, 0, errors.New("serve: --dir and --bin are required")
	}
	if untilGone < 0 {
		return cfg, 0, fmt.Errorf("serve: --until-gone %d is not a process id", untilGone)
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if cfg.Dir, err = filepath.Abs(*dir); err != nil {
		return cfg, 0, err
	}
	if cfg.Bin, err = filepath.Abs(*bin); err != nil {
		return cfg, 0, err
	}
	if *flux != "" {
		if cfg.Flux, err = filepath.Abs(*flux); err != nil {
			return cfg, 0, err
		}
	}
	if *gitea != "" {
		if cfg.Gitea, err = filepath.Abs(*gitea); err != nil {
			return cfg, 0, err
		}
	}
	if cfg.Lab, err = os.Executable(); err != nil {
		return cfg, 0, err
	}
	if cfg.Latency, err = environment.ParseLatency(*latency); err != nil {
		return cfg, 0, fmt.Errorf("serve: %w", err)
	}
	if cfg.API = cloud.API(*api); !slices.Contains(cloud.APIs(), cfg.API) {
		return cfg, 0, fmt.Errorf("serve: --api %q is none of %v", *api, cloud.APIs())
	}
	if *images != "" {
		if cfg.Images, err = kubelet.LoadPrograms(*images); err != nil {
			return cfg, 0, err
		}
	}
	if cfg.Originals, err = originals.Load(*released); err != nil {
		return cfg, 0, err
	}
	return cfg, untilGone, nil
}

// givenFlags are the flags for the programs of which a daemon can have several versions.
func givenFlags(flags *flag.FlagSet, kubernetes, core *[]programs.Given) {
	given := func(name, what string, all *[]programs.Given) {
		flags.Func(name, "VERSION=FOLDER: "+what+" of that minor version; may be repeated", func(text string) error {
			version, folder, ok := strings.Cut(text, "=")
			if !ok || version == "" || !filepath.IsAbs(folder) {
				return fmt.Errorf("%q is not VERSION=FOLDER, with an absolute path", text)
			}
			*all = append(*all, programs.Given{For: version, Bin: folder})
			return nil
		})
	}
	given("kubernetes", "Kubernetes programs for control planes", kubernetes)
	given("core", "the program of Cluster API's core", core)
}

func newFlags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main reports errors, in one line
	return flags
}

// parse parses the flags and refuses arguments that are not flags.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", flags.Name(), err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: unexpected argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}
