package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/lab/environment"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/local"
	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/originals"
)

// manage runs local management clusters in the foreground. HTTPS_PROXY and NO_PROXY are the way out to Hetzner.
func manage(ctx context.Context, args []string) error {
	cfg, untilGone, err := parseManage(args)
	if err != nil {
		return usageError{err}
	}
	ctx, end, err := endWith(ctx, untilGone)
	if err != nil {
		return err
	}
	defer end()
	return netns.Enter(ctx, local.NewDialer(), func(ctx context.Context, n netns.Network) error {
		cfg.Network = n
		return local.Run(ctx, cfg)
	})
}

func parseManage(args []string) (cfg local.Config, untilGone int, err error) {
	flags := newFlags("manage")
	dir := flags.String("dir", "", "folder of the management clusters (required)")
	bin := flags.String("bin", "", "folder of the upstream programs (required)")
	givenFlags(flags, &cfg.Kubernetes, &cfg.Core)
	images := flags.String("images", "", "YAML file: programs that run for images")
	standIns := flags.Bool("stand-ins", false, "rehearsal: the lab's stand-ins run for images that are not mapped")
	released := flags.String("originals", "", "with --stand-ins, JSON file: released programs in the place of stand-ins")
	latency := flags.String("latency", string(environment.RealLatency), "with --stand-ins, how often they poll: fast or real")
	ca := flags.String("ca", "", "file of the authorities that Pods trust in place of the system's")
	flags.IntVar(&untilGone, "until-gone", 0, "end when the process with this id has ended")
	if err := parse(flags, args); err != nil {
		return cfg, 0, err
	}
	if *dir == "" || *bin == "" {
		return cfg, 0, errors.New("manage: --dir and --bin are required")
	}
	if untilGone < 0 {
		return cfg, 0, fmt.Errorf("manage: --until-gone %d is not a process id", untilGone)
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if cfg.Dir, err = filepath.Abs(*dir); err != nil {
		return cfg, 0, err
	}
	if cfg.Bin, err = filepath.Abs(*bin); err != nil {
		return cfg, 0, err
	}
	if *images != "" {
		if cfg.Programs, err = kubelet.LoadPrograms(*images); err != nil {
			return cfg, 0, err
		}
	}
	cfg.PodEnv = map[string]string{}
	if *ca != "" {
		cfg.PodEnv["SSL_CERT_FILE"] = *ca
	}
	if *standIns {
		pace, err := environment.ParseLatency(*latency)
		if err != nil {
			return cfg, 0, fmt.Errorf("manage: %w", err)
		}
		if cfg.Lab, err = os.Executable(); err != nil {
			return cfg, 0, err
		}
		set, err := originals.Load(*released)
		if err != nil {
			return cfg, 0, err
		}
		cfg.StandIns = set.Programs
		maps.Copy(cfg.PodEnv, pace.StandInEnv())
	}
	return cfg, untilGone, nil
}
