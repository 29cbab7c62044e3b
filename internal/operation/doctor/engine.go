package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/platform"
)

const (
	gib = 1 << 30
	// engineDisk holds a kind node image unpacked (1.3 GiB), the images of cert-manager and four providers in the node
	// (1.5), etcd and logs; the rest is air: a full disk stops etcd.
	engineDisk = 6 * gib
	// engineMemory holds one node with etcd, the API server, five controllers' processes and the kubelet. The processes
	// alone were measured at 1 GiB in the lab.
	engineMemory = 2 * gib
	// engineInotify are the inotify instances of a kind node with Cluster API: 20 are what the same Kubernetes and
	// providers take in the lab; systemd, containerd, the kubelet and the node's own Pods were not counted on an engine.
	engineInotify = 40
)

// engine holds the container engine against what kind needs, where kind makes the management cluster.
func (d *Doctor) engine(ctx context.Context) Finding {
	user, uses := d.tools.Management.(platform.EngineUser)
	if d.selfManaged {
		return ok("cluster %s manages itself, and needs no container engine", d.cfg.ClusterName)
	}
	if !uses {
		return ok("%s needs no container engine on this machine", d.manager())
	}
	e, err := user.Engine(ctx)
	if err != nil && ctx.Err() != nil {
		return unheard(err)
	}
	if err != nil {
		return failed("start it, set MANAGEMENT=local, which needs none (Linux), or name an existing cluster in "+
			"MANAGEMENT_KUBECONFIG", "%s needs a container engine, "+
			"which does not answer: %v", d.manager(), err)
	}
	const rootless = "https://kind.sigs.k8s.io/docs/user/rootless/"
	switch {
	case e.Rootless && !e.CgroupV2:
		return failed("boot with cgroup v2, or run the engine as root: "+rootless, "%s runs rootless with cgroup v1, where "+
			"kind creates no cluster", e.Name)
	case e.Rootless && !e.CanLimit:
		return failed("set Delegate=yes for the engine's systemd unit: "+rootless, "%s runs rootless and may not limit "+
			"memory, processes and CPU, without which kind creates no cluster", e.Name)
	case e.FreeBytes > 0 && e.FreeBytes < engineDisk:
		return failed("free some (docker system prune, or the like)", "%s has %s free in %s, a management cluster needs %s",
			e.Name, gibs(e.FreeBytes), e.DataRoot, gibs(engineDisk))
	case e.MemoryBytes > 0 && e.MemoryBytes < engineMemory:
		return failed("give its machine more", "%s has %s of memory, a management cluster needs %s", e.Name,
			gibs(e.MemoryBytes), gibs(engineMemory))
	case e.InotifyLimit > 0 && e.InotifyLimit-e.InotifyUsed < engineInotify:
		return failed("end other programs that watch files (clusters, editors), or allow more until the next boot: sudo "+
			"sysctl fs.inotify.max_user_instances=1024", "the user that %s runs containers as has %d of %d inotify instances "+
			"(fs.inotify.max_user_instances) in use, and a management cluster takes about %d: Cluster API's providers would "+
			"end with \"too many open files\"", e.Name, e.InotifyUsed, e.InotifyLimit, engineInotify)
	}
	image := ""
	switch {
	case e.NodeImageThere:
		image = "; the node image " + e.NodeImage + " is there"
	case e.NodeImage != "":
		image = "; the node image " + e.NodeImage + " has to be pulled"
	}
	var untold []string
	if e.FreeBytes == 0 {
		untold = append(untold, fmt.Sprintf("how much of its disk is free (%s are needed)", gibs(engineDisk)))
	}
	if e.MemoryBytes == 0 {
		untold = append(untold, fmt.Sprintf("how much memory it has (%s are needed)", gibs(engineMemory)))
	}
	if len(untold) > 0 {
		return unknown("look at the machine or VM that it runs on", "%s %s does not report %s%s", e.Name, e.Version,
			strings.Join(untold, ", nor "), image)
	}
	cgroup := "cgroup v1"
	if e.CgroupV2 {
		cgroup = "cgroup v2"
	}
	return ok("%s %s with %s, %s of memory and %s free in %s%s", e.Name, e.Version, cgroup, gibs(e.MemoryBytes),
		gibs(e.FreeBytes), e.DataRoot, image)
}

// gibs writes a size as people compare it.
func gibs(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }
