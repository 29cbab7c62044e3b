package steps

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/factory"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/shell"
)

const packerTemplate = "packer/hcloud_talosimage.pkr.hcl"

// PackerCommands are shell commands that make the image of the configuration with Packer, in place of the step image.
// overrides is as Tools has it.
func PackerCommands(cfg config.Config, overrides string) ([]string, error) {
	sources, err := render.Read(nil, overrides)
	if err != nil {
		return nil, err
	}
	schematic, err := schematic(sources)
	if err != nil {
		return nil, err
	}
	id, err := schematic.ID()
	if err != nil {
		return nil, err
	}
	commands := []string{"packer init " + packerTemplate}
	if id != knownSchematic {
		commands = append(commands,
			fmt.Sprintf("curl --fail --data-binary @%s %s/schematics", shell.Quote(sources.Schematic.Name), factory.Address))
	}
	for _, architecture := range cfg.Architectures(architectureOf(cfg.PreferredServerType())) {
		commands = append(commands, fmt.Sprintf("packer build -var talos_version=%s -var architecture=%s -var schematic=%s "+
			"-var image_name=%s -var location=%s %s",
			shell.Quote(cfg.TalosVersion), architecture, id, shell.Quote(cfg.Image(architecture)), cfg.PreferredLocation(),
			packerTemplate))
	}
	return commands, nil
}

// architectureOf tells a server type's architecture by its name, for where Hetzner is not asked: only CAX types are
// arm64.
func architectureOf(serverType string) string {
	if strings.HasPrefix(serverType, "cax") {
		return "arm64"
	}
	return "amd64"
}
