package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/inotify"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/platform"
)

// Engine implements platform.EngineUser.
func (k *Provider) Engine(ctx context.Context) (platform.Engine, error) {
	chosen, err := k.kind.engine(ctx)
	if err != nil {
		return platform.Engine{}, err
	}
	e, err := chosen.ask(ctx, chosen.name)
	e.Name = chosen.name
	if err == nil && k.image != "" {
		e.NodeImage, e.NodeImageThere = findImage(ctx, chosen.name, k.image)
	}
	return e, err
}

// dockerInfo is the part of `docker info` that is read.
type dockerInfo struct {
	Name, ServerVersion, DockerRootDir string
	CgroupDriver, CgroupVersion        string
	MemoryLimit, PidsLimit, CPUShares  bool
	MemTotal                           int64
	SecurityOptions                    []string // "name=rootless", "name=seccomp,profile=default"
	ServerErrors                       []string // why the client has no answer
}

func dockerEngine(ctx context.Context, program string) (platform.Engine, error) {
	info, err := askDocker(ctx, program)
	e := info.engine()
	if host, _ := os.Hostname(); err == nil && info.Name == host {
		e.FreeBytes = freeBytes(info.DockerRootDir) // elsewhere the folder would be another machine's
		e.InotifyUsed, e.InotifyLimit = watches(e.Rootless)
	}
	return e, err
}

// nerdctlEngine does not tell where containerd keeps its data.
func nerdctlEngine(ctx context.Context, program string) (platform.Engine, error) {
	info, err := askDocker(ctx, program)
	return info.engine(), err
}

func askDocker(ctx context.Context, program string) (info dockerInfo, err error) {
	data, err := output(ctx, program, "info", "--format", "{{json .}}")
	if err == nil || len(data) > 0 {
		if wrong := json.Unmarshal(data, &info); err == nil {
			err = wrong
		}
	}
	if len(info.ServerErrors) > 0 { // also where the exit code is 0
		err = fmt.Errorf("%s info: %s", program, text.Printable(strings.Join(info.ServerErrors, "; ")))
	}
	if err == nil && info.ServerVersion == "" {
		err = fmt.Errorf("%s info knows of no server", program)
	}
	return info, err
}

func (i dockerInfo) engine() platform.Engine {
	return platform.Engine{
		Version: i.ServerVersion, CgroupV2: i.CgroupVersion == "2", MemoryBytes: i.MemTotal, DataRoot: i.DockerRootDir,
		// Without a driver the limits that it tells mean nothing (moby issue 42151).
		CanLimit: i.CgroupDriver != "none" && i.MemoryLimit && i.PidsLimit && i.CPUShares,
		Rootless: slices.ContainsFunc(i.SecurityOptions,
			func(o string) bool { return slices.Contains(strings.Split(o, ","), "name=rootless") }),
	}
}

func podmanEngine(ctx context.Context, program string) (platform.Engine, error) {
	data, err := output(ctx, program, "info", "--format", "json")
	if err != nil {
		return platform.Engine{}, err
	}
	var info struct {
		Host struct {
			Hostname          string
			CgroupVersion     string
			CgroupControllers []string
			MemTotal          int64
			Security          struct{ Rootless bool }
		}
		Store struct {
			GraphRoot                         string
			GraphRootAllocated, GraphRootUsed int64
		}
		Version struct{ Version string }
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return platform.Engine{}, fmt.Errorf("read podman info: %w", err)
	}
	can := true
	for _, controller := range []string{"memory", "pids", "cpu"} {
		can = can && slices.Contains(info.Host.CgroupControllers, controller)
	}
	e := platform.Engine{
		Version: info.Version.Version, CgroupV2: info.Host.CgroupVersion == "v2", CanLimit: can,
		Rootless:    info.Host.Security.Rootless,
		MemoryBytes: info.Host.MemTotal, DataRoot: info.Store.GraphRoot,
		FreeBytes: info.Store.GraphRootAllocated - info.Store.GraphRootUsed,
	}
	if host, _ := os.Hostname(); info.Host.Hostname == host {
		e.InotifyUsed, e.InotifyLimit = watches(e.Rootless)
	}
	return e, nil
}

// watches are the inotify instances of the user that the processes in an engine's containers run as on this machine, as
// far as this user can see them.
func watches(rootless bool) (used, limit int) {
	user := 0
	if rootless {
		user = os.Getuid()
	}
	use, _ := inotify.Of("/proc", user)
	return use.Used, use.Limit
}

// output runs a program to its end and returns what it printed.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := child.Command(ctx, name, args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && len(failed.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, err
}
