// Package factory knows the Talos Image Factory: which schematic has which id, where the disk image of a schematic
// lies, and how to tell the factory of a schematic. Only the last of them needs a network.
package factory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"

	"go.yaml.in/yaml/v3"
)

// Address is where Sidero Labs runs the Image Factory.
const Address = "https://factory.talos.dev"

// Schematic says what an image has beside Talos itself. It has the fields of the Image Factory's schematic that mean
// something on a Hetzner server, in the factory's order, which its id depends on.
type Schematic struct {
	Customization Customization `yaml:"customization"`
}

// Customization is the whole of a Schematic.
type Customization struct {
	ExtraKernelArgs  []string         `yaml:"extraKernelArgs,omitempty"`
	Meta             []MetaValue      `yaml:"meta,omitempty"`
	SystemExtensions SystemExtensions `yaml:"systemExtensions,omitempty"`
}

// MetaValue is an entry of Talos's META partition.
type MetaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

// SystemExtensions are parts of the system that plain Talos lacks.
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty"` // "siderolabs/qemu-guest-agent"
}

// Parse reads a schematic as people write it. A field that is not known is an error, because the image would lack it.
func Parse(data []byte) (Schematic, error) {
	var s Schematic
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(&s)
	if errors.Is(err, io.EOF) {
		return Schematic{}, errors.New("is empty: plain Talos is written as `customization: {}`")
	}
	return s, err
}

// ID is the Image Factory's name for the schematic: the SHA-256 of its canonical YAML. The factory knows an id only
// once the schematic was posted to it.
func (s Schematic) ID() (string, error) {
	canonical, err := yaml.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("write the schematic: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// DiskImage is the address of the disk image, compressed with xz, of a schematic for Hetzner servers of an architecture
// ("amd64", "arm64"). version begins with v.
func DiskImage(schematicID, version, architecture string) *url.URL {
	u, _ := url.Parse(Address) // a constant
	return u.JoinPath("image", schematicID, version, "hcloud-"+architecture+".raw.xz")
}

// Installer is the installer image of a schematic for Hetzner servers, which a Talos that runs is upgraded with.
// version begins with v.
func Installer(schematicID, version string) string {
	u, _ := url.Parse(Address) // a constant
	return u.Host + "/hcloud-installer/" + schematicID + ":" + version
}
