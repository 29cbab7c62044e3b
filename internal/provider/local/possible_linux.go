package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/slipway-k8s/slipway/internal/base/child"
)

// Possible is nil if this machine gives a process the namespaces that a local management cluster runs in.
func Possible(ctx context.Context) error {
	probe := child.Command(ctx, "/proc/self/exe", "--help")
	probe.Env = []string{"PATH=" + os.Getenv("PATH")}
	probe.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := probe.Start()
	switch {
	case err == nil:
		_ = probe.Wait() // that it could be started is the answer
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return refused("sysctl user.max_user_namespaces is too low", err)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return refused("this container, or the setting kernel.unprivileged_userns_clone or "+
			"kernel.apparmor_restrict_unprivileged_userns of this system, forbids them", err)
	}
	return refused("the kernel refuses them", err)
}

func refused(why string, err error) error {
	return fmt.Errorf("MANAGEMENT=local runs its processes in a user, network and PID namespace of their own, and this "+
		"machine does not allow that: %s (%w); without them its webhook servers would listen on all addresses of this "+
		"machine, at ports 9443, 9440 and 8443: change the setting, or use MANAGEMENT=kind or existing", why, err)
}
