package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// hosts are the Services of a cluster that have names in its Pods, in the place of a cluster's DNS and kube-proxy: each
// name leads to the Node whose Pod serves it, and the Node's address to the Pod.
type hosts struct {
	addresses map[string]string // by SERVICE.NAMESPACE
	files     map[string]bool   // the hosts files of the cluster's Nodes
}

// hostsHead is what every container's /etc/hosts begins with.
const hostsHead = `# Written by the lab, which has no cluster DNS.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
`

// file is what /etc/hosts is in the cluster's containers.
func (h *hosts) file() []byte {
	var b bytes.Buffer
	b.WriteString(hostsHead)
	for _, name := range slices.Sorted(maps.Keys(h.addresses)) {
		fmt.Fprintf(&b, "%s\t%[2]s.svc.cluster.local %[2]s.svc %[2]s\n", h.addresses[name], name)
	}
	return b.Bytes()
}

// addHosts writes the hosts file of a Node, and keeps it up to date until removeHosts.
func (r *Registry) addHosts(cluster, file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[cluster]
	if h == nil {
		h = &hosts{addresses: map[string]string{}, files: map[string]bool{}}
		r.hosts[cluster] = h
	}
	h.files[file] = true
	return overwrite(file, h.file())
}

func (r *Registry) removeHosts(cluster, file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hosts[cluster].files, file)
}

// serve has a Service's name lead to an address, in all Pods of the cluster. It stays so until another address takes
// the place: a name without a Pod behind it refuses connections.
func (r *Registry) serve(cluster, namespace, service, address string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, name := r.hosts[cluster], service+"."+namespace
	if h.addresses[name] == address {
		return nil
	}
	h.addresses[name] = address
	var errs []error
	for file := range h.files {
		errs = append(errs, overwrite(file, h.file()))
	}
	return errors.Join(errs...)
}

// overwrite changes a file that is mounted in containers, and so has to stay the same one. It is at no moment empty.
func overwrite(file string, content []byte) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write the hosts of containers: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(content, 0); err != nil {
		return fmt.Errorf("write the hosts of containers: %w", err)
	}
	return f.Truncate(int64(len(content)))
}

// hostsFile is /etc/hosts of the Node's containers.
func (k *Kubelet) hostsFile() string { return filepath.Join(k.cfg.Dir, "hosts") }

// mountsHosts says whether a container has a volume in the place of /etc/hosts.
func mountsHosts(spec corev1.Container) bool {
	return slices.ContainsFunc(spec.VolumeMounts, func(m corev1.VolumeMount) bool {
		at := path.Clean(m.MountPath)
		return at == "/etc" || at == "/etc/hosts"
	})
}
