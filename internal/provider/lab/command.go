package lab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	// CommandImage is the image for which the Pods of a lab run this command.
	CommandImage = "slipway.dev/slipway"
	// commandFolder, in a lab's folder, has the command; the lab knows it, too (lab/kubelet, CommandProgram).
	commandFolder, commandFile = "command", "slipway"
)

// ProvideCommand makes sure that Pods of the image CommandImage run this command as it is now. A copy: `go run` deletes
// its own when it ends.
func (l *Lab) ProvideCommand() (err error) {
	fail := func(err error) error { return fmt.Errorf("give the lab's Pods this command: %w", err) }
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	to := filepath.Join(l.Dir, commandFolder, commandFile)
	want, err := digestOf(self)
	if err != nil {
		return fail(err)
	}
	if has, err := digestOf(to); err == nil && has == want {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fail(err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fail(err)
	}
	defer from.Close()
	// Renamed into its place, so that a process that runs the old one keeps it.
	part, err := os.CreateTemp(filepath.Dir(to), commandFile+".*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(part.Name())
	_, err = io.Copy(part, from)
	if err = errors.Join(err, part.Chmod(0o700), part.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(part.Name(), to); err != nil {
		return fail(err)
	}
	return nil
}

func digestOf(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
