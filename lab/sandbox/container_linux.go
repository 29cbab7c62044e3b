package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread into the container: a process that the thread starts runs in it. The goroutine must be
// locked to its thread and end with it. After an error, too, the thread is of no other use.
func (c Container) Enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return refused("a mount namespace", "max_mnt_namespaces", err)
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the host name %s: %w", c.Hostname, err)
	}
	// So that no mount reaches the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount the container's root: %w", err)
	}
	if err := c.build(); err != nil {
		return err
	}
	if err := unix.Setns(int(c.Network.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the Pod's network namespace: %w", err)
	}
	if err := unix.PivotRoot(c.Root, filepath.Join(c.Root, machineDir)); err != nil {
		return fmt.Errorf("change to the container's root: %w", err)
	}
	return os.Chdir("/")
}

// build fills the container's root.
func (c Container) build() error {
	t := tree{root: c.Root, made: map[string]bool{}}
	if err := t.start(); err != nil {
		return err
	}
	mounts := slices.Clone(c.Mounts)
	var targets []string
	for _, m := range mounts {
		targets = append(targets, resolve(m.Target))
	}
	for _, path := range c.Visible {
		if t.hides(path) || below(resolve(path), targets) { // a volume at /tmp may hide it as well
			mounts = append(mounts, Mount{Source: path, Target: path})
		}
	}
	slices.SortStableFunc(mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) }) // parents first
	for _, m := range mounts {
		if err := t.bind(m); err != nil {
			return err
		}
	}
	return nil
}

// machineDir is where a container sees the machine's root.
const machineDir = ".machine"

// ownDirs are the folders that a container has of its own, empty at first.
var ownDirs = []string{"/tmp", "/run", "/proc"}

// tree is a container's root while it is built. A folder of it either is the machine's, by a symbolic link, or was made:
// then it has such a link for each entry of the machine's folder, so that mount points can be made in it.
type tree struct {
	root  string
	made  map[string]bool // by path in the container
	bound []string        // what is mounted: nothing of the machine is linked into it
}

func (t *tree) at(path string) string { return filepath.Join(t.root, path) }

func (t *tree) start() error {
	if err := os.Mkdir(t.at(machineDir), 0o755); err != nil {
		return err
	}
	for _, dir := range ownDirs {
		if err := os.Mkdir(t.at(dir), 0o755); err != nil {
			return err
		}
		t.made[dir] = true
	}
	if err := os.Chmod(t.at("/tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	// Of the lab's process ids, which the machine's /proc is not. Where parts of that are hidden, as in many containers,
	// the system refuses it.
	if err := unix.Mount("proc", t.at("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		if err := unix.Mount("/proc", t.at("/proc"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	return t.link("/")
}

// link links the entries of the machine's folder into the same folder of the container.
func (t *tree) link(dir string) error {
	t.made[dir] = true
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if t.made[path] {
			continue
		}
		target := filepath.Join("/", machineDir, path)
		if entry.Type()&os.ModeSymlink != 0 { // leads to the container's own folders, too
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		if err := os.Symlink(target, t.at(path)); err != nil {
			return err
		}
	}
	return nil
}

// hides says whether a path of the machine is below a folder that the container has of its own.
func (t *tree) hides(path string) bool {
	return below(resolve(path), ownDirs)
}

func below(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// bind mounts a folder or a file of the machine.
func (t *tree) bind(m Mount) error {
	source, err := filepath.EvalSymlinks(m.Source)
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	target := resolve(m.Target)
	if err := t.mountPoint(target, info.IsDir()); err != nil {
		return fmt.Errorf("make the mount point %s: %w", m.Target, err)
	}
	if err := unix.Mount(source, t.at(target), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, m.Target, err)
	}
	t.bound = append(t.bound, target)
	if !m.ReadOnly {
		return nil
	}
	// The flags of the file system below cannot be taken away.
	var fs unix.Statfs_t
	if err := unix.Statfs(t.at(target), &fs); err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME
	flags := uintptr(fs.Flags)&kept | unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	if err := unix.Mount("", t.at(target), "", flags, ""); err != nil {
		return fmt.Errorf("mount %s read-only: %w", m.Target, err)
	}
	return nil
}

// mountPoint makes a folder, or a file, and the folders above it.
func (t *tree) mountPoint(path string, dir bool) error {
	parent := filepath.Dir(path)
	if err := t.makeDir(parent); err != nil {
		return err
	}
	if t.made[path] {
		return nil
	}
	if dir {
		return t.makeDir(path)
	}
	if _, err := os.Lstat(t.at(path)); err == nil {
		if err := t.clear(path); err != nil {
			return err
		}
	}
	t.made[path] = true
	return os.WriteFile(t.at(path), nil, 0o600)
}

// makeDir makes a folder of the container out of one of the machine, or a new one.
func (t *tree) makeDir(path string) error {
	if t.made[path] || path == "/" {
		return nil
	}
	if err := t.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	info, err := os.Lstat(t.at(path))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir(): // below a volume that is mounted already
		return nil
	default:
		if err := t.clear(path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(t.at(path), 0o755); err != nil {
		return err
	}
	if below(path, ownDirs) || below(path, t.bound) {
		t.made[path] = true
		return nil
	}
	return t.link(path)
}

// clear removes the link to the machine's file or folder.
func (t *tree) clear(path string) error {
	info, err := os.Lstat(t.at(path))
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return err
	}
	return os.Remove(t.at(path))
}

// maxLinks bounds the symbolic links that a path leads over.
const maxLinks = 40

// resolve follows the machine's symbolic links in a path, of which the end may not exist.
func resolve(path string) string {
	path = filepath.Clean(path)
	for links := 0; links < maxLinks; {
		done, rest := "/", strings.Split(strings.Trim(path, "/"), "/")
		changed := false
		for i, name := range rest {
			next := filepath.Join(done, name)
			target, err := os.Readlink(next)
			if err != nil {
				done = next
				continue
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(done, target)
			}
			path = filepath.Join(append([]string{target}, rest[i+1:]...)...)
			changed = true
			break
		}
		if !changed {
			return path
		}
		links++
	}
	return path
}
