// Command release builds what is released: static, stripped binaries that carry the lab's source, their checksums, a
// list of the modules that each is built from, and a container image. The same commit gives the same bytes on every
// machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "dist", "folder for the binaries, their SBOMs, versions.yaml and SHA256SUMS")
	only := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "what to build for, or host")
	install := flag.Bool("install", false, "build for this machine and put the binary into PREFIX/bin, $GOBIN or "+
		"~/.local/bin")
	check := flag.Bool("check", false, "build in two clones of HEAD in different folders and compare the bytes")
	packed := flag.Bool("image", false, "pack the binaries for Linux as a container image too: slipway-VERSION-oci.tar")
	push := flag.String("push", "", "push that image to registry/repository:tag, with the credentials of docker login")
	flag.Parse()
	targets, err := parseTargets(*only)
	if err == nil {
		r := release{source: ".", program: "./cmd/bootstrap", name: "bootstrap",
			image: *packed || *push != "" || *check && hasLinux(targets)}
		switch {
		case *install && (*check || r.image) || *check && *push != "":
			err = errors.New("-install takes neither -check nor -image nor -push, and -check takes no -push")
		case *install:
			err = r.install(ctx)
		case *check:
			err = r.check(ctx, targets)
		default:
			err = r.buildAndPush(ctx, *out, targets, *push)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// target is what a binary runs on.
type target struct{ os, arch string }

func host() target { return target{runtime.GOOS, runtime.GOARCH} }

func parseTargets(text string) (all []target, err error) {
	for word := range strings.SplitSeq(text, ",") {
		if word == "host" {
			all = append(all, host())
			continue
		}
		system, arch, ok := strings.Cut(word, "/")
		if !ok {
			return nil, fmt.Errorf("%q is no target: write linux/amd64", word)
		}
		all = append(all, target{system, arch})
	}
	return all, nil
}

// hasLinux reports whether an image can be made.
func hasLinux(targets []target) bool {
	return slices.ContainsFunc(targets, func(t target) bool { return t.os == "linux" })
}

// release is a program of a source tree.
type release struct {
	source, program, name string
	image                 bool // packed as a container image too
}

// buildAndPush builds, and pushes the image that it built; empty: it pushes none.
func (r release) buildAndPush(ctx context.Context, out string, targets []target, reference string) error {
	if reference == "" {
		_, err := r.build(ctx, out, targets)
		return err
	}
	to, err := parsePush(reference)
	if err != nil {
		return err
	}
	made, err := r.build(ctx, out, targets)
	if err != nil {
		return err
	}
	return made.push(ctx, to)
}

// build fills the folder with everything that is released, and returns the image that is part of it. A file that is
// there of an earlier build is replaced.
func (r release) build(ctx context.Context, out string, targets []target) (made image, err error) {
	if r.image && !hasLinux(targets) {
		return made, errNoLinux
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return made, err
	}
	archive, err := packLab(ctx, r.source)
	if err != nil {
		return made, err
	}
	var files []string
	var binaries []binary
	for _, t := range targets {
		name := fmt.Sprintf("%s-%s-%s", r.name, t.os, t.arch)
		path := filepath.Join(out, name)
		if err := r.compile(ctx, t, archive, path); err != nil {
			return made, err
		}
		if err := writeSBOM(r.name, path, path+".cdx.json"); err != nil {
			return made, err
		}
		files = append(files, name, name+".cdx.json")
		if t.os == "linux" {
			binaries = append(binaries, binary{t.arch, path})
		}
		if err := printSize(path); err != nil {
			return made, err
		}
	}
	if r.image {
		if made, err = newImage(binaries); err != nil {
			return made, err
		}
		saved, err := made.save(out)
		if err != nil {
			return made, err
		}
		files = append(files, saved)
		if err := printSize(filepath.Join(out, saved)); err != nil {
			return made, err
		}
	}
	if err := copyVersions(r.source, out); err != nil {
		return made, err
	}
	return made, writeSums(out, append(files, versionsFile))
}

func printSize(path string) error {
	info, err := os.Stat(path)
	if err == nil {
		fmt.Printf("%s: %d MB\n", path, info.Size()/1e6)
	}
	return err
}

// compile builds one binary. The lab's source is laid over the tree, so that building does not change it.
func (r release) compile(ctx context.Context, t target, archive []byte, path string) (err error) {
	temporary, err := os.MkdirTemp("", "slipway-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	overlay, err := overlayLab(r.source, temporary, archive)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "release,kustomize_disable_go_plugin_support",
		"-ldflags", "-s -w -buildid=", "-overlay", overlay, "-o", path, r.program)
	build.Dir = r.source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+t.os, "GOARCH="+t.arch,
		"GOAMD64=v1", "GOARM64=v8.0")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w", r.program, t.os, t.arch, err)
	}
	return nil
}

// install builds for this machine and puts the binary where a shell finds it.
func (r release) install(ctx context.Context) error {
	dir, err := installDir(os.Getenv("PREFIX"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	archive, err := packLab(ctx, r.source)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, r.name)
	if err := r.compile(ctx, host(), archive, path); err != nil {
		return err
	}
	fmt.Println("installed:", path)
	if !slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir) {
		fmt.Printf("%s is not on your PATH: add it\n", dir)
	}
	return nil
}

// installDir is bin below a prefix, or else GOBIN, or else ~/.local/bin.
func installDir(prefix string) (string, error) {
	if prefix != "" {
		return filepath.Abs(filepath.Join(prefix, "bin"))
	}
	out, err := exec.Command("go", "env", "GOBIN").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOBIN: %w", err)
	}
	if dir := strings.TrimSpace(string(out)); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "bin"), err
}

// check shows that neither the folder nor what else lies in it gets into a release.
func (r release) check(ctx context.Context, targets []target) (err error) {
	temporary, err := os.MkdirTemp("", "slipway-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	var sums []string
	for _, name := range []string{"one", "a-second-clone"} {
		clone := filepath.Join(temporary, name, "source")
		if out, err := exec.CommandContext(ctx, "git", "clone", "-q", r.source, clone).CombinedOutput(); err != nil {
			return fmt.Errorf("clone %s: %w: %s", r.source, err, out)
		}
		dist := filepath.Join(temporary, name, "dist")
		if _, err := (release{clone, r.program, r.name, r.image}).build(ctx, dist, targets); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dist, sumsFile))
		if err != nil {
			return err
		}
		sums = append(sums, string(data))
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("two builds of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
	fmt.Printf("two builds of one commit are the same:\n%s", sums[0])
	return nil
}
