package kubelet

import (
	"context"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// keptVolumes are the Pod's volumes whose files outlive the kubelet: they are there as long as the Pod is, also when
// its Node was off. Claims are among them, although the lab has no disks that a later Pod could be given.
func keptVolumes(api *corev1.Pod) map[string]bool {
	kept := map[string]bool{}
	for _, v := range api.Spec.Volumes {
		kept[v.Name] = v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory || v.PersistentVolumeClaim != nil
	}
	return kept
}

// keptDir is the folder of such volumes.
func (p *pod) keptDir() string { return filepath.Join(p.k.keptDir(), string(p.uid)) }

func (k *Kubelet) keptDir() string { return filepath.Join(k.cfg.Dir, "volumes") }

// removeKept removes those of the volumes that an earlier kubelet left whose Pods do not exist any more.
func (k *Kubelet) removeKept(ctx context.Context, left []os.DirEntry, pods cache.SharedInformer) {
	if len(left) == 0 || !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return
	}
	uids := map[string]bool{}
	for _, object := range pods.GetStore().List() {
		if api, ok := object.(*corev1.Pod); ok {
			uids[string(api.UID)] = true
		}
	}
	for _, e := range left {
		if uids[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.keptDir(), e.Name())); err != nil {
			k.log.Warn("the volumes of a Pod that is gone were not removed", "reason", err)
		}
	}
}
