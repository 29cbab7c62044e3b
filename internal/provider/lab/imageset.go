package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/images"
)

// originsFile, in the folder of a set, says which image each of its programs is from. The lab reads it.
const originsFile = "programs.json"

// fetchLock, in the folder of the sets, is held while one is made, and while images are removed that no set has.
const fetchLock = "fetch.lock"

// origin is the image that a program of a set is from.
type origin struct {
	File    string `json:"file"`
	Module  string `json:"module"`
	Version string `json:"version"`
	images.Image
}

// imageSets makes sets of programs out of images. A set is a folder with the programs of one configuration's versions;
// sets of other versions lie beside it, and the images that they share are stored once.
type imageSets struct {
	config config.Config
	only   []upstreamProgram // nil: inSets
	what   string            // only's name in messages
	dir    string            // folder of the sets
	store  *images.Store
	// modules makes sure that Go's module cache has these (path@version), which the lab makes manifests from.
	modules func(ctx context.Context, modules []string) error

	slowest    float64 // bytes a second below which a pull ends; 0: it has all the time
	judgeAfter time.Duration
}

// of makes sets of the programs of a kind alone, of a version.
func (s *imageSets) of(k Kind, version string) *imageSets {
	other := *s
	k.with(&other.config, version)
	other.what, other.only = k.Name+" "+version, programsOf(k)
	return &other
}

// programs are those of a set.
func (s *imageSets) programs() []upstreamProgram {
	if s.only != nil {
		return s.only
	}
	return inSets()
}

// bin is the folder of the configuration's set, made or not.
func (s *imageSets) bin() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s/%s\n", runtime.GOOS, runtime.GOARCH)
	for _, p := range s.programs() {
		fmt.Fprintf(hash, "%s %s\n", p.file, p.reference(s.config))
	}
	return filepath.Join(s.dir, hex.EncodeToString(hash.Sum(nil))[:16], "bin")
}

// has reports whether a folder is that of a set out of images.
func (s *imageSets) has(bin string) bool { return filepath.Dir(filepath.Dir(bin)) == s.dir }

// ready is the folder of the configuration's set; empty: it has to be fetched. It sends no request. A set whose digests
// are not those of the lock file is not ready: the operator has accepted others.
func (s *imageSets) ready() (string, error) {
	bin := s.bin()
	origins, err := readOrigins(bin)
	if err != nil {
		return "", nil // a set without the file is not whole
	}
	for _, o := range origins {
		recorded, err := s.store.Recorded(o.Reference)
		if err != nil {
			return "", err
		}
		if recorded != o.Digest {
			return "", nil
		}
	}
	return bin, nil
}

func readOrigins(bin string) ([]origin, error) {
	data, err := os.ReadFile(filepath.Join(bin, originsFile))
	if err != nil {
		return nil, err
	}
	var file struct {
		Programs []origin `json:"programs"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(bin, originsFile), err)
	}
	return file.Programs, nil
}

// fetch makes sure that the configuration's set is there, and returns its folder. Two commands at once make it once.
func (s *imageSets) fetch(ctx context.Context, say flow.Say) (string, error) {
	if bin, err := s.ready(); err != nil || bin != "" {
		return bin, err
	}
	if runtime.GOOS != "linux" {
		return "", errNotLinux
	}
	bin := s.bin()
	home := filepath.Dir(bin)
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return "", fmt.Errorf("create a folder for the lab's programs: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(s.dir, fetchLock), "fetching the lab's programs", say)
	if err != nil {
		return "", err
	}
	defer unlock()
	if bin, err := s.ready(); err != nil || bin != "" { // by whom we waited for
		return bin, err
	}
	what := upstreamNames
	if s.only != nil {
		what = s.what
	}
	say("fetching %s from their images", what)
	origins, err := s.pull(ctx, say)
	if err != nil {
		return "", err
	}
	if modules := providerModules(origins); len(modules) > 0 {
		if err := s.modules(ctx, modules); err != nil {
			return "", fmt.Errorf("fetch the manifests of the providers: %w", err)
		}
	}
	if err := s.assemble(home, origins); err != nil {
		return "", fmt.Errorf("put the lab's programs into %s: %w", bin, err)
	}
	return bin, nil
}

// atOnce is how many images are fetched at the same time.
const atOnce = 4

// pull fetches all images of the set. The first failure ends the others.
func (s *imageSets) pull(ctx context.Context, say flow.Say) ([]origin, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress := images.NewProgress(say, sayBuildEvery)
	go s.watchRate(ctx, progress, cancel)
	programs := s.programs()
	origins := make([]origin, len(programs))
	slots := make(chan struct{}, atOnce)
	var fetching sync.WaitGroup
	for i, p := range programs {
		reference := p.reference(s.config)
		fetching.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			image, err := s.store.Fetch(ctx, reference, progress)
			if err != nil {
				cancel(err)
				return
			}
			origins[i] = origin{File: p.file, Module: p.module, Version: p.version(s.config), Image: image}
		})
	}
	fetching.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return origins, nil
}

// providerModules are the modules of the Cluster API providers, whose manifests belong to their versions.
func providerModules(origins []origin) (modules []string) {
	for _, o := range origins {
		if strings.Contains(o.Module, "cluster-api") {
			modules = append(modules, o.Module+"@"+o.Version)
		}
	}
	return modules
}

// assemble links the programs into the set's folder, beside it and renamed, so that a folder that is there is whole.
func (s *imageSets) assemble(home string, origins []origin) error {
	unfinished, bin := filepath.Join(home, "unfinished"), filepath.Join(home, "bin")
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	for i, p := range s.programs() {
		program, err := origins[i].Program(p.path)
		if err != nil {
			return err
		}
		if err := images.LinkOrCopy(program, filepath.Join(unfinished, p.file)); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(map[string]any{"programs": origins}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(unfinished, originsFile), data, 0o644); err != nil {
		return err
	}
	// One whose digests are not accepted any more. A lab that runs it keeps its open files.
	if err := os.RemoveAll(bin); err != nil {
		return err
	}
	return os.Rename(unfinished, bin)
}
