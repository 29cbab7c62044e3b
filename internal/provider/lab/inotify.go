package lab

import (
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/inotify"
)

// What the programs of a cluster take of the inotify instances that Linux allows a user. kube-apiserver and a leading
// kube-controller-manager take six each, kube-scheduler and a provider one each; a lab of three control plane servers
// was seen with 46. kube-apiserver reads its files once a minute where it gets none; the providers end.
const (
	inotifyLeast = 20 // a management cluster
	inotifyWhole = 60 // a lab in which one of three servers is being replaced
)

// checkInotify refuses to start a cluster whose providers would end with "too many open files", and says so where
// they may later on.
func checkInotify(u inotify.Use, say flow.Say) error {
	const remedy = "end other programs that watch files (labs, editors), or allow more until the next boot: " +
		"sudo sysctl fs.inotify.max_user_instances=1024"
	free := u.Limit - u.Used
	if free < inotifyLeast {
		return fmt.Errorf("this user has %d of %d inotify instances (fs.inotify.max_user_instances) in use and a "+
			"management cluster takes %d: Cluster API's providers would end with \"too many open files\"; %s",
			u.Used, u.Limit, inotifyLeast, remedy)
	}
	if free < inotifyWhole {
		say("note: this user has %d of %d inotify instances (fs.inotify.max_user_instances) in use and a cluster with "+
			"its management takes up to %d; where a provider ends with \"too many open files\", %s",
			u.Used, u.Limit, inotifyWhole, remedy)
	}
	return nil
}
