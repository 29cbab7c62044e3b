package world

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// inotifyOfALab is what a lab with a management cluster and a cluster of three takes of them: six a kube-apiserver and
	// an active controller-manager for their certificates, one every other program.
	inotifyOfALab = 48
	// inotifyOfAMove is what comes to such a lab when providers start once more, as at a pivot.
	inotifyOfAMove = 8
)

// shortage says what this user is running out of, of what a lab with so many processes will still need; empty: nothing.
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
	limit, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances") // empty where the system does not tell
	return fmt.Sprintf(
		"of this user's inotify instances (fs.inotify.max_user_instances=%s) %d are left, and this lab needs %d more: "+
			"without one a provider of Cluster API ends as it starts. End another lab, or: sysctl "+
			"fs.inotify.max_user_instances=512",
		strings.TrimSpace(string(limit)), left, need)
}

// spareInotify counts how many more inotify instances this user can have, up to most.
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
