package rescue

import (
	"context"
	"fmt"
	"io"
	"regexp"
)

// The commands of hcloudimages v1.3.0, byte for byte.
const (
	discardCommand  = "blkdiscard /dev/sda"
	shutdownCommand = "shutdown now"
)

var (
	writeCommand = regexp.MustCompile(
		`^bash -c 'set -euo pipefail && wget --no-verbose -O - "([^"']+)" \| xz -cd \| dd of=/dev/sda bs=4M && sync'$`)
	// factoryImage is a disk image of the Image Factory for Hetzner: schematic, version, architecture.
	factoryImage = regexp.MustCompile(
		`^https://factory\.talos\.dev/image/[0-9a-f]{64}/v[0-9]+\.[0-9]+\.[0-9]+[^/]*/hcloud-(amd64|arm64)\.raw\.xz$`)
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUnknown     = 127 // as a shell's for a command that it does not find
	exitInterrupted = 130
)

// execute runs a command and returns its exit code.
func (s *system) execute(ctx context.Context, command string, stderr io.Writer) uint32 {
	switch write := writeCommand.FindStringSubmatch(command); {
	case command == discardCommand, command == shutdownCommand:
		return exitDone
	case write != nil:
		return s.write(ctx, write[1], stderr)
	default:
		fmt.Fprintf(stderr, "the lab's rescue system supports the commands of hcloudimages v1.3.0 only, not %q\n", command)
		return exitUnknown
	}
}

// write simulates the download of an image to the disk.
func (s *system) write(ctx context.Context, url string, stderr io.Writer) uint32 {
	if !factoryImage.MatchString(url) {
		fmt.Fprintf(stderr, "wget: %s: the lab has no internet, it simulates the Image Factory's images for Hetzner only\n",
			url)
		return exitFailed
	}
	s.does("writes " + url)
	defer s.does("waits for commands")
	if !sleep(ctx, s.config.Latency.Write) {
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "URL:%s -> \"-\" [1]\n", url)
	return exitDone
}
