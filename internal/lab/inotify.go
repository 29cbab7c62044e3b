package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
)

// What the programs of a cluster take of the inotify instances that Linux allows a user. kube-apiserver and a leading
// kube-controller-manager take six each, kube-scheduler and a provider one each; a lab of three control plane servers
// was seen with 46. kube-apiserver reads its files once a minute where it gets none; the providers end.
const (
	inotifyLeast = 20 // a management cluster
	inotifyWhole = 60 // a lab in which one of three servers is being replaced
)

// inotifyUse is how many inotify instances a user has, of how many.
type inotifyUse struct{ used, limit int }

// inotifyOf reads this user's in a /proc. There is none (false) where the kernel is not Linux.
func inotifyOf(proc string, user int) (inotifyUse, bool) {
	data, err := os.ReadFile(filepath.Join(proc, "sys/fs/inotify/max_user_instances"))
	if err != nil {
		return inotifyUse{}, false
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return inotifyUse{}, false
	}
	use := inotifyUse{limit: limit}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, process := range processes {
		if info, err := os.Stat(process); err != nil || ownerOf(info) != user {
			continue
		}
		open, _ := filepath.Glob(filepath.Join(process, "fd", "*")) // none: it ended meanwhile
		for _, file := range open {
			if target, err := os.Readlink(file); err == nil && target == "anon_inode:inotify" {
				use.used++
			}
		}
	}
	return use, true
}

func ownerOf(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// check refuses to start a cluster whose providers would end with "too many open files", and says so where they may
// later on.
func (u inotifyUse) check(say flow.Say) error {
	const remedy = "end other programs that watch files (labs, editors), or allow more until the next boot: " +
		"sudo sysctl fs.inotify.max_user_instances=1024"
	free := u.limit - u.used
	if free < inotifyLeast {
		return fmt.Errorf("this user has %d of %d inotify instances (fs.inotify.max_user_instances) in use and a "+
			"management cluster takes %d: Cluster API's providers would end with \"too many open files\"; %s",
			u.used, u.limit, inotifyLeast, remedy)
	}
	if free < inotifyWhole {
		say("note: this user has %d of %d inotify instances (fs.inotify.max_user_instances) in use and a cluster with "+
			"its management takes up to %d; where a provider ends with \"too many open files\", %s",
			u.used, u.limit, inotifyWhole, remedy)
	}
	return nil
}
