package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// extra are programs that a lab has where they are configured: Flux's controllers, or Gitea.
type extra struct {
	name       string // in messages
	module     string // folder of the module that names the programs
	recipe     recipe
	file       string                      // in a lab's folder, says that the lab may run them
	configured bool                        // lab build makes them
	needed     bool                        // a lab that starts may run them
	offered    bool                        // so may a new lab, where they are built
	setting    string                      // with which lab build makes them
	possible   func(context.Context) error // nil: they can always be built
}

// bin is the folder of the programs, built or not; empty: the lab's source has none.
func (x extra) bin(ctx context.Context, b *builder) (string, error) {
	if !Exists(filepath.Join(x.module, "go.mod")) {
		return "", nil
	}
	bin, _, err := b.bin(ctx, toolset{module: x.module})
	return bin, err
}

// build makes sure that the programs are built.
func (x extra) build(ctx context.Context, b *builder, say flow.Say) (string, error) {
	if x.possible != nil {
		if err := x.possible(ctx); err != nil {
			return "", err
		}
	}
	return b.compileTools(ctx, toolset{module: x.module}, x.name, x.recipe, say)
}

// toRun is the folder of the programs for a lab that starts. They are built where they are needed, and where the lab
// may run them since an earlier start.
func (x extra) toRun(ctx context.Context, b *builder, say flow.Say) (string, error) {
	bin, err := x.bin(ctx, b)
	if err != nil || bin == "" {
		return "", err
	}
	if x.needed || x.offered && Exists(bin) && !Exists(filepath.Join(b.lab, "state.json")) {
		if err := x.record(b); err != nil {
			return "", err
		}
	}
	if !x.recorded(b) {
		return bin, nil
	}
	return x.build(ctx, b, say)
}

// record has the lab's later starts make sure of the programs.
func (x extra) record(b *builder) error {
	if err := os.WriteFile(filepath.Join(b.lab, x.file), nil, 0o600); err != nil {
		return fmt.Errorf("write that the lab runs %s: %w", x.name, err)
	}
	return nil
}

func (x extra) recorded(b *builder) bool { return Exists(filepath.Join(b.lab, x.file)) }

// built is nil if the programs are there, or are not configured.
func (x extra) built(ctx context.Context, b *builder) error {
	if !x.configured {
		return nil
	}
	bin, err := x.bin(ctx, b)
	if err == nil && !Exists(bin) {
		err = fmt.Errorf("the programs of %s are not built: %s", x.name, platform.ShellCommand("lab", "build", x.setting))
	}
	return err
}

// buildConfigured builds the programs if they are configured. It returns the folders to keep; where others are
// removed, also one that is there and not configured.
func (x extra) buildConfigured(ctx context.Context, b *builder, prune bool, say flow.Say) ([]string, error) {
	bin, err := x.bin(ctx, b)
	if err != nil || bin == "" {
		return nil, err
	}
	if x.configured {
		_, err = x.build(ctx, b, say)
	}
	if x.configured || prune && Exists(bin) {
		return []string{bin}, err
	}
	return nil, nil
}
