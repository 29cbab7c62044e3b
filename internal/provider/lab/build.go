package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
)

const (
	// Module is the lab's own Go module; its tool directives name the upstream programs.
	Module = "github.com/slipway-k8s/slipway/lab"
	// sayBuildEvery keeps a compiler's progress from filling a log.
	sayBuildEvery = 5 * time.Second
)

// builder makes the lab's programs in the user's cache: the upstream ones once for each version, from the source tree
// or out of their images, and the lab's daemon, from source.
type builder struct {
	source string   // folder of the lab module
	cache  string   // folder that holds a folder for each set of upstream programs, and the daemon
	env    []string // for go; without secrets
	lab    string   // folder of the lab that the programs are for
	sets   *imageSets
	// released are the programs that the lab has stand-ins for, overrides has the operator's files, which name them.
	released  *originals.Cache
	overrides string
}

// newBuilder finds the lab's source for a command that was called in the lab's WorkDir.
func newBuilder(l *Lab) (*builder, error) {
	source, err := source(l.WorkDir, carriedSource())
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the lab's programs: %w", err)
	}
	store, err := newStore(l.Programs.Registries)
	if err != nil {
		return nil, err
	}
	b := &builder{source: source, cache: filepath.Join(cache, "slipway", "lab"), env: withoutSecrets(l.Environment),
		lab: l.Dir, overrides: l.Programs.Overrides,
		released: &originals.Cache{Dir: filepath.Join(cache, "slipway", "lab-originals"), Store: store}}
	b.sets = &imageSets{config: l.Programs.Config, dir: filepath.Join(cache, "slipway", "lab-images"), store: store,
		modules: b.downloadModules, judgeAfter: judgeAfter}
	return b, nil
}

// downloadModules makes sure that Go's module cache has modules, given as path@version. For one that it has already,
// "go mod download" would ask the module proxy all the same.
func (b *builder) downloadModules(ctx context.Context, modules []string) error {
	cache, err := b.goOutput(ctx, b.source, "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(modules), func(module string) bool {
		_, err := os.Stat(filepath.Join(strings.TrimSpace(cache), filepath.FromSlash(module)))
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	_, err = b.goOutput(ctx, b.source, append([]string{"mod", "download"}, missing...)...)
	return err
}

// withoutSecrets leaves out of an environment what only this command needs.
func withoutSecrets(environment map[string]string) []string {
	var list []string
	for key, value := range environment {
		if !strings.HasPrefix(key, "HCLOUD_") {
			list = append(list, key+"="+value)
		}
	}
	slices.Sort(list)
	return child.Environment(list)
}

// Build makes everything, without starting it. With prune it removes what other
// versions of the lab have left.
func (l *Lab) Build(ctx context.Context, prune bool, say flow.Say) error {
	builder, err := newBuilder(l)
	if err != nil {
		return err
	}
	if builder.sets.config.HasGitea() { // before the other programs, which take long
		if err := builder.giteaPossible(ctx); err != nil {
			return err
		}
	}
	bin, err := builder.programs(ctx, say)
	if err != nil {
		return err
	}
	bins := []string{bin}
	for _, k := range kinds() {
		version := k.configured(l.Programs.Config)
		if version == "" {
			continue
		}
		set, err := builder.setFor(ctx, k, version, builder.sets.has(bin), say)
		if err != nil {
			return err
		}
		if set.own {
			bins = append(bins, set.bin)
		}
		if _, err := l.Add(ctx, k, version, say); err != nil && !errors.Is(err, ErrDown) {
			return err
		}
	}
	for _, x := range []extra{builder.flux(), builder.gitea()} {
		kept, err := x.buildConfigured(ctx, builder, prune, say)
		if err != nil {
			return err
		}
		bins = append(bins, kept...)
	}
	if err := builder.daemon(ctx, "", say); err != nil {
		return err
	}
	for _, bin := range bins {
		if builder.sets.has(bin) {
			say("fetched: %s", bin)
		} else {
			say("built: %s", bin)
		}
	}
	if err := builder.describeOriginals(ctx, bin, say); err != nil {
		return err
	}
	if prune {
		return builder.prune(ctx, bins, say)
	}
	return nil
}

// toolchain is what besides go.mod and go.sum makes two builds different.
type toolchain struct{ GOVERSION, GOOS, GOARCH string }

// upstream makes sure that the upstream programs are built and returns their folder.
func (b *builder) upstream(ctx context.Context, say flow.Say) (string, error) {
	tools, err := b.ownTools()
	if err != nil {
		return "", err
	}
	names := upstreamNames
	if tools.packages != nil {
		names = "etcd and the Cluster API providers"
	}
	return b.compileTools(ctx, tools, names, recipe{}, say)
}

// toolset are programs that are built together.
type toolset struct {
	module   string   // folder of the module that names them
	packages []string // of the programs; nil: all tools of the module
}

// recipe is what is special about building the tools of a module.
type recipe struct {
	args   []string                                    // further ones of go install
	env    []string                                    // further variables for go
	finish func(ctx context.Context, dir string) error // puts more into the tools' folder; nil: nothing
}

// compileTools makes sure that the tools of a module are built and returns their folder. Two commands at once build
// them once.
func (b *builder) compileTools(ctx context.Context, tools toolset, what string, r recipe,
	say flow.Say) (string, error) {
	bin, ldflags, err := b.bin(ctx, tools)
	if err != nil || Exists(bin) {
		return bin, err
	}
	home := filepath.Dir(bin)
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", fmt.Errorf("create a folder for the lab's programs: %w", err)
	}
	unlock, err := waitForLock(ctx, home+".lock", "building the lab's programs", say)
	if err != nil {
		return "", err
	}
	defer unlock()
	if Exists(bin) { // by whom we waited for
		return bin, nil
	}
	// Built beside and renamed, so that a bin folder that is there is whole.
	unfinished := filepath.Join(home, "unfinished")
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return "", err
	}
	say("building %s from source", what)
	// With the flags of a plain `go run ./cmd/bootstrap`: what the command and these programs have in common is compiled
	// once. Other flags, -trimpath or CGO_ENABLED among them, would compile it again.
	args := append([]string{"install", "-v", "-ldflags", ldflags}, r.args...)
	packages := tools.packages
	if packages == nil {
		packages = []string{"tool"}
	}
	if err := b.compile(ctx, tools.module, say, slices.Concat(b.env, r.env, []string{"GOBIN=" + unfinished}),
		append(args, packages...)...); err != nil {
		return "", fmt.Errorf("build %s: %w", what, err)
	}
	if r.finish != nil {
		if err := r.finish(ctx, unfinished); err != nil {
			return "", fmt.Errorf("build %s: %w", what, err)
		}
	}
	if err := os.Rename(unfinished, bin); err != nil {
		return "", err
	}
	return bin, nil
}

// bin is the folder of tools, built or not, and the linker's flags that they are built with.
func (b *builder) bin(ctx context.Context, tools toolset) (dir, ldflags string, err error) {
	required, err := requiredIn(tools.module)
	if err != nil {
		return "", "", err
	}
	ldflags = plainFlags
	if version := required[kubernetesPath]; version != "" {
		ldflags = versionFlags(version)
	}
	if version := required[giteaPath]; version != "" {
		ldflags += " -X main.Version=" + strings.TrimPrefix(version, "v")
	}
	key, err := b.key(ctx, tools, ldflags)
	return filepath.Join(b.cache, key, "bin"), ldflags, err
}

// buildTags leave the loading of Go plugins out of kustomize, which no program here uses: with package plugin the
// linker takes twice as long, and the program is a third larger.
const buildTags = "kustomize_disable_go_plugin_support"

// daemon builds the lab itself and puts the program at path; empty: it is only made sure that it can be built. It is
// linked in the cache, where go build does nothing if the program there is of the same source.
func (b *builder) daemon(ctx context.Context, path string, say flow.Say) error {
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return fmt.Errorf("create a folder for the lab's programs: %w", err)
	}
	program := filepath.Join(b.cache, "lab")
	unlock, err := waitForLock(ctx, program+".lock", "building the lab", say)
	if err != nil {
		return err
	}
	defer unlock()
	say("building the lab")
	err = b.compile(ctx, b.source, say, b.env, "build", "-v", "-buildvcs=false", "-tags", buildTags,
		"-ldflags", plainFlags, "-o", program, "./cmd/lab")
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("build the lab: %w", err)
	}
	if err := images.LinkOrCopy(program, path); err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	return nil
}

// plainFlags are the linker's flags that leave out what only a debugger reads.
const plainFlags = "-s -w"

// versionFlags are the linker's flags that give the Kubernetes programs their version, which Cluster API looks at and
// refuses to be without.
func versionFlags(version string) string {
	const target = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(minorOf(version), "v"), ".")
	return fmt.Sprintf("%s -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", plainFlags,
		target, version, target, major, target, minor)
}

// key names a set of upstream programs by everything that goes into them.
func (b *builder) key(ctx context.Context, of toolset, ldflags string) (string, error) {
	out, err := b.goOutput(ctx, of.module, "env", "-json", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	var tools toolchain
	if err := json.Unmarshal([]byte(out), &tools); err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%+v\n%s\n", tools, ldflags)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(of.module, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
	}
	if of.packages != nil {
		fmt.Fprintln(hash, of.packages)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func (b *builder) goOutput(ctx context.Context, module string, args ...string) (string, error) {
	command := child.Command(ctx, "go", args...)
	command.Dir, command.Env = module, b.env
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, text.LastLine(string(exit.Stderr)))
	}
	return string(out), err
}

// compile runs go in a module and says how far it is. The error has the end of what go said.
func (b *builder) compile(ctx context.Context, module string, say flow.Say, env []string, args ...string) error {
	progress := &compilation{say: say, said: time.Now()}
	command := child.Command(ctx, "go", args...)
	command.Dir, command.Stderr = module, progress
	// Compilers and linkers whose garbage collector runs less often need a third less processor time. A GOGC of the
	// caller's own counts: of two the last does.
	command.Env = append([]string{"GOGC=400"}, env...)
	// go ends its compilers when it is interrupted; killed, it would leave them.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Second
	err := command.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go %s: %w:\n%s", args[0], err, strings.Join(progress.other, "\n"))
	}
	return nil
}

// compilation follows what go says with -v: a line for each package that it
// compiles, lines about downloads, and complaints.
type compilation struct {
	say      flow.Say
	said     time.Time
	rest     string // a line that has no end yet
	packages int
	now      string
	other    []string // the last lines that are neither
}

// Write takes what go writes, as it comes.
func (c *compilation) Write(p []byte) (int, error) {
	lines := strings.Split(c.rest+string(p), "\n")
	c.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		c.line(line)
	}
	if time.Since(c.said) >= sayBuildEvery {
		c.said = time.Now()
		c.say("%d packages compiled, now %s", c.packages, c.now)
	}
	return len(p), nil
}

func (c *compilation) line(line string) {
	line = text.Printable(line)
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		c.now = strings.TrimPrefix(line, "go: ")
	case line != "" && !strings.ContainsAny(line, " :") && !strings.HasPrefix(line, "#"):
		c.packages++
		c.now = line
	default:
		const kept = 20
		c.other = append(c.other, line)
		c.other = c.other[max(0, len(c.other)-kept):]
	}
}

// waitForLock takes a lock file, and says which process has it.
func waitForLock(ctx context.Context, path, what string, say flow.Say) (unlock func() error, err error) {
	return images.WaitForLock(ctx, path, func(pid int) { say("waiting for process %d, which is %s", pid, what) })
}

// Exists reports whether a file or folder exists.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
