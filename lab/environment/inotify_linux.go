package environment

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// inotifyOfALab is the number of inotify instances that a lab with a management cluster and a cluster of three servers
	// uses: six for each kube-apiserver and active controller-manager, for their certificates, one for every other
	// program.
	inotifyOfALab = 48
	// inotifyOfAMove is how many more such a lab needs while providers start in a second cluster, as at a pivot.
	inotifyOfAMove = 8
)

// shortage reports that this user's inotify instances will not suffice for what a lab with so many processes still
// starts; empty: they suffice.
func shortage(processes int) string {
	need := inotifyOfALab
	if processes > 0 {
		need = inotifyOfAMove
	}
	return tooFew(spareInotify(need), need)
}

func tooFew(left, need int) string {
	if left >= need {
		return ""
	}
	limit, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances") // empty if the system does not report it
	return fmt.Sprintf(
		"of this user's inotify instances (fs.inotify.max_user_instances=%s) %d are left, and this lab needs %d more: "+
			"without one a provider of Cluster API fails at its start. End another lab, or: sysctl "+
			"fs.inotify.max_user_instances=512",
		strings.TrimSpace(string(limit)), left, need)
}

// spareInotify counts how many more inotify instances this user can create, at most most.
func spareInotify(most int) int {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for len(fds) < most {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	return len(fds)
}
