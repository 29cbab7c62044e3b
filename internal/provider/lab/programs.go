package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// Programs says where the lab's programs come from. The zero value builds them from source.
type Programs struct {
	Config     config.Config     // LabPrograms, and the versions of the images
	Registries images.Registries // mirrors and private registries
	Overrides  string            // folder with the files that the operator edits; empty: none
}

// NewPrograms reads the configuration of registries: the file that the configuration names, or registry.yaml in a
// folder, where it exists.
func NewPrograms(c config.Config, workDir, dir string) (Programs, error) {
	p := Programs{Config: c, Overrides: dir}
	file := filepath.Join(dir, "registry.yaml")
	if c.RegistryConfig != "" {
		file = settings.InFolder(workDir, c.RegistryConfig)
	} else if !Exists(file) {
		return p, nil
	}
	var err error
	p.Registries, err = images.LoadRegistries(file)
	return p, err
}

// newStore is the user's image store.
func newStore(registries images.Registries) (*images.Store, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for images: %w", err)
	}
	configuration, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the digests of images: %w", err)
	}
	return &images.Store{Dir: filepath.Join(cache, "slipway", "images"),
		LockFile: filepath.Join(configuration, "slipway", "images.lock"), Registries: registries}, nil
}

// programs makes sure that a set of upstream programs is there, and returns its folder.
func (b *builder) programs(ctx context.Context, say flow.Say) (string, error) {
	switch b.mode() {
	case config.LabProgramsImages:
		return b.sets.fetch(ctx, say)
	case config.LabProgramsAuto:
		if bin, _, err := b.built(ctx); err != nil || bin != "" {
			return bin, err
		}
		bin, err := b.sets.attempt(ctx, say)
		if err == nil || ctx.Err() != nil {
			return bin, err
		}
		say("the programs are built from source, because their images cannot be used here: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return b.upstream(ctx, say)
}

// mode is where programs come from. A lab that has run before stays with what it ran, whatever was fetched for others
// since.
func (b *builder) mode() string {
	mode := b.sets.config.LabPrograms
	switch {
	case mode == "":
		return config.LabProgramsSource
	case mode != config.LabProgramsAuto || b.lab == "":
		return mode
	}
	ran, err := os.ReadFile(filepath.Join(b.lab, programsFile))
	switch {
	case err == nil && string(ran) == config.LabProgramsImages:
		return config.LabProgramsImages
	case Exists(filepath.Join(b.lab, "state.json")):
		return config.LabProgramsSource
	}
	return mode
}

// programsFile, in a lab's folder, says where the programs came from that it ran first.
const programsFile = "programs"

// remember writes where the programs of a set come from into the lab's folder.
func (b *builder) remember(bin string) error {
	from := config.LabProgramsSource
	if b.sets.has(bin) {
		from = config.LabProgramsImages
	}
	if err := os.WriteFile(filepath.Join(b.lab, programsFile), []byte(from), 0o600); err != nil {
		return fmt.Errorf("write where the lab's programs come from: %w", err)
	}
	return nil
}

// built finds a set that is there already; empty: there is none. missing says how the one that is wanted comes to be.
func (b *builder) built(ctx context.Context) (bin, missing string, err error) {
	mode := b.mode()
	if mode != config.LabProgramsSource {
		bin, err := b.sets.ready()
		if err != nil || bin != "" {
			return bin, "", err
		}
		missing = "the images of the lab's programs are not fetched"
	}
	if mode != config.LabProgramsImages {
		tools, err := b.ownTools()
		if err != nil {
			return "", "", err
		}
		bin, _, err := b.bin(ctx, tools)
		if err != nil || Exists(bin) {
			return bin, "", err
		}
		missing = "the lab's programs are not built for this version of it"
	}
	return "", missing, nil
}

// Built is nil if a set of upstream programs is there. It sends no request.
func (l *Lab) Built(ctx context.Context) error {
	builder, err := newBuilder(l)
	if err != nil {
		return err
	}
	bin, missing, err := builder.built(ctx)
	if err == nil && bin == "" {
		err = errors.New(missing + ": " + platform.ShellCommand("lab", "build"))
	}
	if err != nil {
		return err
	}
	return errors.Join(builder.setsBuilt(ctx, bin), builder.flux().built(ctx, builder),
		builder.gitea().built(ctx, builder))
}

// errNotLinux is why images are of no use on other systems.
var errNotLinux = fmt.Errorf("images hold programs for Linux, and this machine runs %s: LAB_PROGRAMS=source builds "+
	"them for it", runtime.GOOS)
