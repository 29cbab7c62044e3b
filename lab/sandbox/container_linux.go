package sandbox

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread into the container: a process that the thread starts runs in it. The goroutine must be
// locked to its thread and end with it. After an error, too, the thread is of no other use. Confine is to follow.
func (c Container) Enter() error {
	for _, own := range []struct {
		flag          int
		what, setting string
	}{
		{unix.CLONE_NEWNS, "a mount namespace", "max_mnt_namespaces"},
		{unix.CLONE_NEWUTS, "a UTS namespace", "max_uts_namespaces"},
		{unix.CLONE_NEWIPC, "an IPC namespace", "max_ipc_namespaces"},
	} {
		if err := unix.Unshare(own.flag); err != nil {
			return refused(own.what, own.setting, err)
		}
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the host name %s: %w", c.Hostname, err)
	}
	// So that no mount reaches the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", rootFlags, "mode=0755"); err != nil {
		return fmt.Errorf("mount the container's root: %w", err)
	}
	if err := c.build(); err != nil {
		return err
	}
	if c.Network != nil {
		if err := unix.Setns(int(c.Network.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the Pod's network namespace: %w", err)
		}
	}
	return change(c.Root)
}

const rootFlags = unix.MS_NOSUID | unix.MS_NODEV

// change makes a folder the root, which is read-only from then on. Nothing of the former root is left in the mount
// namespace but what was mounted below the folder.
func change(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("change to the container's root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the former root lies over the new one
		return fmt.Errorf("change to the container's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("take the machine's files away: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|rootFlags, ""); err != nil {
		return fmt.Errorf("make the container's root read-only: %w", err)
	}
	return nil
}

// build fills the container's root.
func (c Container) build() error {
	r := root(c.Root)
	if err := r.start(c.Hostname); err != nil {
		return err
	}
	mounts := slices.Clone(c.Mounts)
	for i := range mounts {
		mounts[i].Target = place(mounts[i].Target)
	}
	own := slices.Clone(mounts) // they hide what the machine has at their paths
	add := func(source, target string) {
		if !slices.ContainsFunc(own, func(m Mount) bool { return below(target, m.Target) }) {
			mounts = append(mounts, Mount{Source: source, Target: target, ReadOnly: true})
		}
	}
	for _, path := range c.Visible { // also below a volume at /tmp
		mounts = append(mounts, Mount{Source: path, Target: place(path), ReadOnly: true})
	}
	for _, path := range c.machineFiles() {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			add(path, path)
			continue
		}
		to, err := os.Readlink(path) // as /lib leads to /usr/lib
		if err != nil {
			return err
		}
		if err := os.Symlink(to, r.at(path)); err != nil {
			return err
		}
	}
	if bundle := authorities(); bundle != "" {
		add(bundle, authoritiesFile)
	}
	slices.SortStableFunc(mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) }) // parents first
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return nil
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// place is where a path of the container leads to.
func place(path string) string {
	path = filepath.Clean(path)
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return filepath.Join("/run", rest)
	}
	return path
}

// libraryPaths have the dynamic linker and the libraries; programPaths have programs and what they read. Their
// contents are the system's, not a user's.
var (
	libraryPaths = []string{"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
		"/etc/ld.so.cache", "/nix/store"}
	programPaths = []string{"/lib", "/lib32", "/lib64", "/libx32", "/usr", "/bin", "/sbin", "/etc/ld.so.cache",
		"/etc/alternatives", "/nix/store"}
)

// machineFiles are the paths of the machine's system that the program does not run without.
func (c Container) machineFiles() []string {
	if c.Tools {
		return programPaths
	}
	if c.Program == "" {
		return nil
	}
	program, err := elf.Open(c.Program)
	if err != nil { // a script
		return programPaths
	}
	defer program.Close()
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return libraryPaths
	}
	return nil
}

// authoritiesFile is where a container has the certificate authorities that the machine trusts.
const authoritiesFile = "/etc/ssl/certs/ca-certificates.crt"

// authorities is the machine's file of them; empty: it has none where Linux distributions have it (crypto/x509,
// root_linux.go).
func authorities() string {
	for _, file := range []string{authoritiesFile, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}
