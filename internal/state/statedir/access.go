package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// checkAccess refuses a folder that other users than this one and root can write, or that has such files: what is read
// there, a kubeconfig or the journal, is trusted. A folder that is not there yet is created closed to others.
func (s Dir) checkAccess() error {
	info, err := os.Stat(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the state folder: %w", err)
	}
	if err := refuseWritable(string(s), info); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrPermission) || err == nil && !info.IsDir() {
		return nil // whatever needs to read it says so
	}
	if err != nil {
		return fmt.Errorf("look at the state folder: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			continue // a file of a run at work, or a link, whose target is checked here too
		}
		if err != nil {
			return fmt.Errorf("look at the state folder: %w", err)
		}
		if err := refuseWritable(s.Path(entry.Name()), info); err != nil {
			return err
		}
	}
	return nil
}

func refuseWritable(path string, info fs.FileInfo) error {
	by := writableBy(info)
	if by == "" {
		return nil
	}
	return usage.Errorf("%s can be written by %s, and what is read there is trusted: check that its content is yours, "+
		"make sure that it belongs to you, and take the right away: chmod -R go-w %s; or name another folder "+
		"(--state-dir). Nothing was changed", path, by, path)
}
