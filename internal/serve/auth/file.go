package auth

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// privateMost is how much is read of a file with a secret, in bytes.
const privateMost = 1 << 20

// ReadPrivate reads a file with a secret. It refuses one that another account of the machine can read or change: the
// file has to belong to the account of this process, or to root, and give others nothing. A file of root's may be
// readable for a group, as one of a Secret that Kubernetes mounts for an fsGroup is. Its folder may not be one in
// which every account can replace it.
func ReadPrivate(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which does not wait for a pipe
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat() // of what is read, whatever the name leads to later
	if err == nil {
		err = checkPrivate(path, info, os.Geteuid())
	}
	if err == nil {
		err = checkFolder(path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, privateMost))
}

// checkPrivate checks the file for the account with the number me.
func checkPrivate(path string, info fs.FileInfo, me int) error {
	owner := me
	if stat, known := info.Sys().(*syscall.Stat_t); known {
		owner = int(stat.Uid)
	}
	forbidden := fs.FileMode(0o077)
	if owner == 0 && me != 0 {
		forbidden = 0o037
	}
	switch mode := info.Mode().Perm(); {
	case !info.Mode().IsRegular():
		return usage.Errorf("%s is no file", path)
	case owner != me && owner != 0:
		return usage.Errorf("%s belongs to account %d, which can change it: it has to belong to the account of this "+
			"process (%d), or to root: chown %d %s", path, owner, me, me, path)
	case mode&forbidden != 0:
		return usage.Errorf("%s can be read or changed by other accounts (mode %04o): chmod 600 %s, or defaultMode: 0400 "+
			"of a Secret's volume. Replace the secret if others may have read it", path, mode, path)
	}
	return nil
}

// checkFolder refuses a file that every account can replace, since its folder lets them. In a sticky one they cannot.
func checkFolder(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, folder := range []string{filepath.Dir(path), filepath.Dir(resolved)} {
		info, err := os.Stat(folder)
		if err != nil {
			return fmt.Errorf("check who can replace %s: %w", path, err)
		}
		if info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return usage.Errorf("%s can be replaced by every account: chmod o-w %s", path, folder)
		}
	}
	return nil
}
