package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// root is a container's root while it is built, an empty tmpfs at first.
type root string

func (r root) at(path string) string { return filepath.Join(string(r), path) }

// start makes what every container has: folders of its own, devices, /proc and the files that libraries read.
func (r root) start(hostname string) error {
	for _, dir := range []string{"/dev", "/etc", "/proc", "/run", "/tmp", "/usr", "/var"} {
		if err := os.Mkdir(r.at(dir), 0o755); err != nil {
			return err
		}
	}
	for _, path := range []string{"/var/tmp", "/dev/shm"} {
		if err := os.Mkdir(r.at(path), 0o755); err != nil {
			return err
		}
	}
	for dir, mode := range map[string]string{"/tmp": "1777", "/var/tmp": "1777", "/dev/shm": "1777", "/run": "0755"} {
		if err := unix.Mount("tmpfs", r.at(dir), "tmpfs", rootFlags, "mode="+mode); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := os.Symlink("/run", r.at("/var/run")); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"hostname":      hostname + "\n",
		"hosts":         "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
		"nsswitch.conf": "hosts: files dns\n",
		"resolv.conf":   "# The lab has no DNS.\n",
		"passwd":        "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
		"group":         "root:x:0:\nnobody:x:65534:\n",
	} {
		if err := os.WriteFile(r.at("/etc/"+name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := r.devices(); err != nil {
		return err
	}
	return r.proc()
}

func (r root) devices() error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		path := "/dev/" + name
		if err := os.WriteFile(r.at(path), nil, 0o644); err != nil {
			return err
		}
		if err := unix.Mount(path, r.at(path), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+to, r.at("/dev/"+name)); err != nil {
			return err
		}
	}
	return nil
}

// Parts of /proc that change the machine, and those that tell of it, as container engines mount them.
var (
	readOnlyProc = []string{"bus", "fs", "irq", "sys", "sysrq-trigger"}
	hiddenProc   = []string{"acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi",
		"timer_list", "timer_stats"}
)

// proc mounts the /proc of the lab's process ids, which the machine's is not, without the processes of others. Where
// parts of the machine's are hidden, as in many containers, the system refuses it, and it is the machine's.
func (r root) proc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("proc", r.at("/proc"), "proc", flags, "hidepid=ptraceable")
	if errors.Is(err, unix.EINVAL) { // before Linux 5.8
		err = unix.Mount("proc", r.at("/proc"), "proc", flags, "")
	}
	if err != nil {
		err = unix.Mount("/proc", r.at("/proc"), "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, name := range readOnlyProc {
		path := "/proc/" + name
		err := r.mount(Mount{Source: r.at(path), Target: path, ReadOnly: true})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mount %s read-only: %w", path, err)
		}
	}
	for _, name := range hiddenProc {
		path := r.at("/proc/" + name)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = unix.Mount("tmpfs", path, "tmpfs", flags|unix.MS_RDONLY, "mode=0555")
		default:
			err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("hide /proc/%s: %w", name, err)
		}
	}
	return nil
}

// mount puts a folder or a file at its path. No symbolic link that a container made leads out of its volume.
func (r root) mount(m Mount) error {
	source, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.Source, err)
	}
	defer unix.Close(source)
	if m.SubPath != "" {
		part, err := unix.Openat2(source, m.SubPath, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		if err != nil {
			return fmt.Errorf("open %s in %s: %w", m.SubPath, m.Source, err)
		}
		defer unix.Close(part)
		source = part
	}
	var stat unix.Stat_t
	if err := unix.Fstat(source, &stat); err != nil {
		return err
	}
	target, err := r.mountPoint(m.Target, stat.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return fmt.Errorf("make the mount point: %w", err)
	}
	defer unix.Close(target)
	const all = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	tree, err := unix.OpenTree(source, "", all|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount (open_tree, which Linux has since 5.2): %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if m.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", all, &attr); err != nil {
		return fmt.Errorf("restrict the mount (mount_setattr, which Linux has since 5.12): %w", err)
	}
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// mountPoint opens a folder, or a file, and makes it and the folders above it where they are missing. A symbolic link
// on the way is an error: a container that made it in a volume would choose where on the machine that is.
func (r root) mountPoint(path string, dir bool) (int, error) {
	at, err := unix.Open(string(r), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range names {
		next, err := entry(at, name, dir || i < len(names)-1)
		unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("/%s: %w", filepath.Join(names[:i+1]...), err)
		}
		at = next
	}
	return at, nil
}

// entry opens a folder or a file of a folder, and makes it where it is missing.
func entry(parent int, name string, dir bool) (int, error) {
	var err error
	if dir {
		err = unix.Mkdirat(parent, name, 0o755)
	} else {
		var made int
		if made, err = unix.Openat(parent, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644); err == nil {
			unix.Close(made)
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	kind := stat.Mode & unix.S_IFMT
	switch {
	case err != nil:
	case kind == unix.S_IFLNK:
		err = errors.New("it is a symbolic link")
	case dir && kind != unix.S_IFDIR:
		err = unix.ENOTDIR
	case !dir && kind == unix.S_IFDIR:
		err = unix.EISDIR
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
