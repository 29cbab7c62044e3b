package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// attacker is the value of programVar for a program that tries to reach what is not its own.
const attacker = "attack"

// neighbours marks, in a path, the files of another container's process.
const neighbours = "/./"

// attempts is what the attacker achieved, "" for all that succeeded.
type attempts struct {
	Errors map[string]string // by what it tried
	Status map[string]string // fields of /proc/self/status
	Root   []string
	PID    int
}

// attack prints its attempts as a line, and waits until it is ended.
func attack() error {
	a := attempts{Errors: map[string]string{}, Status: map[string]string{}, PID: os.Getpid()}
	try := func(what string, err error) {
		if a.Errors[what] = ""; err != nil {
			a.Errors[what] = err.Error()
		}
	}
	for _, path := range strings.Fields(os.Getenv("READ")) {
		_, err := os.ReadFile(path)
		try("read "+path, err)
	}
	for _, path := range strings.Fields(os.Getenv("WRITE")) {
		try("write "+path, os.WriteFile(path, []byte("1"), 0o600))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		a.Status[key] = strings.TrimSpace(value)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		a.Root = append(a.Root, e.Name())
	}
	parent := os.Getppid()
	try("mount", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	try("umount", unix.Unmount("/tmp", unix.MNT_DETACH))
	try("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	try("ptrace", unix.PtraceSeize(parent))
	try("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF))
	try("mknod", unix.Mknod("/tmp/slipway-attack-device", unix.S_IFBLK, int(unix.Mkdev(8, 0))))
	_, err = unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	try("vsock", err)
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0)
	if errno == 0 {
		os.Exit(0) // the child, too
	}
	try("clone into a user namespace", errno)
	try("signal the lab", unix.Kill(parent, 0))
	const size = 64 // of struct clone_args
	_, _, errno = unix.RawSyscall(unix.SYS_CLONE3, 0, size, 0)
	try("clone3", errno)

	// What every program does.
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		return err
	}
	try("use", os.Rename(file, filepath.Join(dir, "other", "file")))
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_ = os.RemoveAll(dir)
	fmt.Println(string(line))
	time.Sleep(time.Minute)
	return nil
}

// startAttack runs the attacker in a container; enter nil: without one.
func startAttack(t *testing.T, enter func() error, env ...string) attempts {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	p, err := proc.New().Start(proc.Spec{Name: "attacker", Path: self, LogFile: log, Dir: "/", Enter: enter,
		Env: append(env, programVar+"="+attacker)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(t.Context(), 0) })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(log)
		if line, _, ok := strings.Cut(string(text), "\n"); ok {
			var a attempts
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("the attacker: %s", text)
			}
			return a
		}
		if exit, ended := p.Exit(); ended || time.Now().After(end) {
			t.Fatalf("the attacker said nothing (%+v): %s", exit, text)
		}
	}
}

func (a attempts) check(t *testing.T) {
	t.Helper()
	version, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	errata, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	for what := range a.Errors { // the kernel may have no Landlock, or an older one
		if strings.Contains(what, neighbours) && int(version) < 2 || what == "signal the lab" && errata&2 == 0 {
			delete(a.Errors, what)
		}
	}
	for what, refusal := range a.Errors {
		if what == "use" && refusal != "" {
			t.Errorf("a program that does nothing wrong gets %q", refusal)
		}
		if what != "use" && refusal == "" {
			t.Errorf("%s is not refused", what)
		}
	}
	if got, want := a.Errors["clone3"], unix.ENOSYS.Error(); got != want {
		t.Errorf("clone3: %s, want %s, so that libraries use clone", got, want)
	}
	for field, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
		if a.Status[field] != want {
			t.Errorf("%s is %s, want %s", field, a.Status[field], want)
		}
	}
	for _, field := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		var set uint64
		if _, err := fmt.Sscanf(a.Status[field], "%x", &set); err != nil {
			t.Fatal(err)
		}
		if set&^(1<<unix.CAP_NET_BIND_SERVICE) != 0 {
			t.Errorf("%s is %s", field, a.Status[field])
		}
	}
}

// A program in a container sees nothing of the operator, of the lab and of another container, and can do nothing that
// takes privileges.
func TestContainerKeepsAnAttackerIn(t *testing.T) {
	r := newRuntime(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home, volume := t.TempDir(), t.TempDir()
	secret := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	box := func(name string) sandbox.Container {
		network, err := r.NewNetwork()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { network.Close() })
		return sandbox.Container{Network: network, Hostname: name, Root: t.TempDir(), Visible: []string{self}, Program: self,
			Mounts: []sandbox.Mount{{Source: volume, Target: "/data"}, {Source: volume, Target: "/config", ReadOnly: true}}}
	}
	other := startAttack(t, box("other").Enter)
	lab := fmt.Sprintf("/proc/%d", os.Getpid())
	neighbour := fmt.Sprintf("/proc/%d%s", other.PID, neighbours)
	a := startAttack(t, box("attacker").Enter, "READ="+strings.Join([]string{secret, "/root/.bashrc", "/etc/shadow",
		"/etc/machine-id", "/proc/1/environ", "/proc/1/root" + secret, lab + "/root" + secret, lab + "/environ",
		lab + "/cwd/sandbox.go", lab + "/mem", neighbour + "/environ", neighbour + "/root/etc/hostname",
		neighbour + "/cmdline"}, " "),
		"WRITE=/new /etc/hosts /config/new /proc/sys/kernel/hostname /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger "+self)
	a.check(t)
	own := []string{"config", "data", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "proc", "run", "usr",
		"var", "tmp", strings.Split(self, "/")[1]}
	for _, name := range a.Root {
		if !slices.Contains(own, name) {
			t.Errorf("the root has /%s", name)
		}
	}
	if written, err := os.ReadDir(volume); err != nil || len(written) > 0 {
		t.Errorf("the volume has %v, %v", written, err)
	}
}

// Where there are no namespaces, a program has no privileges either.
func TestProcessWithoutContainerHasNoPrivileges(t *testing.T) {
	a := startAttack(t, nil)
	for what := range a.Errors { // of the lab's files and processes some are the attacker's, too
		if strings.HasPrefix(what, "read ") || strings.HasPrefix(what, "write ") {
			delete(a.Errors, what)
		}
	}
	a.check(t)
}

// A symbolic link that a container left in a volume leads neither another one's mount, nor its mount point, out of it.
func TestLinkInAVolumeLeadsNowhere(t *testing.T) {
	newRuntime(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	volume, outside := t.TempDir(), t.TempDir()
	for name, to := range map[string]string{"absolute": outside, "relative": "../" + filepath.Base(outside)} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, mounts := range [][]sandbox.Mount{
		{{Source: volume, SubPath: "absolute", Target: "/data"}},
		{{Source: volume, SubPath: "relative", Target: "/data"}},
		{{Source: volume, SubPath: "..", Target: "/data"}},
		{{Source: volume, Target: "/data"}, {Source: t.TempDir(), Target: "/data/absolute/new"}},
	} {
		c := sandbox.Container{Hostname: "x", Root: t.TempDir(), Visible: []string{self}, Program: self, Mounts: mounts}
		_, err := proc.New().Start(proc.Spec{Name: "x", Path: self, Enter: c.Enter})
		if err == nil {
			t.Errorf("%+v is mounted", mounts)
		}
	}
	if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
		t.Errorf("outside of the volume there is %v, %v", made, err)
	}
}
