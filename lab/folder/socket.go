package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// maxSocketPath leaves room below the 104 bytes that a Unix socket's path has on macOS (108 on Linux).
const maxSocketPath = 100

// socketNames are a daemon's Unix sockets: longestSocket is one of them.
const (
	controlSocket = "lab.sock"
	pathSuffix    = ".path"                       // lab.sock.path names the socket if its path would be too long
	longestSocket = len("egress-1234567890.sock") // by a server's id
)

// Sockets returns the folder for a daemon's Unix sockets: dir, or, if its path is too long, a 0700 folder for
// temporary files that lab.sock.path names, the same one at every start.
func Sockets(dir string) (string, error) {
	if len(dir)+1+longestSocket <= maxSocketPath {
		return dir, nil
	}
	note := filepath.Join(dir, controlSocket+pathSuffix)
	if b, err := os.ReadFile(note); err == nil {
		old := filepath.Dir(strings.TrimSpace(string(b)))
		if ownFolder(old) {
			return old, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	made, err := os.MkdirTemp("", "slipway-lab-") // 0700, as os.MkdirTemp documents
	if err != nil {
		return "", fmt.Errorf("folder for sockets: %w", err)
	}
	return made, pki.WriteFile(note, []byte(filepath.Join(made, controlSocket)+"\n"))
}

// ownFolder says whether a folder exists that only the current user can open.
func ownFolder(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm() == 0o700 && owned(info)
}

// RemoveSockets removes a folder that Sockets created.
func RemoveSockets(dir, sockets string) error {
	if sockets == dir {
		return nil
	}
	return errors.Join(os.RemoveAll(sockets), os.Remove(filepath.Join(dir, controlSocket+pathSuffix)))
}

// FindSocket returns the path of the control socket of the daemon in dir, whether it runs or not.
func FindSocket(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, controlSocket+pathSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(dir, controlSocket), nil
	}
	return strings.TrimSpace(string(b)), err
}

// ListenControl listens on the control socket. It replaces one that a killed daemon left: the folder's lock proves that
// no other daemon runs.
func ListenControl(sockets string) (net.Listener, error) {
	path := filepath.Join(sockets, controlSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace the control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
