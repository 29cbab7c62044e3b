package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A Service's name leads to the Pod that serves it from all Pods of the cluster, also from those that ran before, and
// to the Node where the Pod is. Another cluster does not know the name.
func TestNamesOfServices(t *testing.T) {
	if !apart(t) {
		return
	}
	sandboxes, err := runtimeOfTests()
	if err != nil {
		t.Fatal(err)
	}
	registry := NewRegistry()
	const serving = "registry.example/serving"
	onNode := func(cluster, name, ip string) *harness {
		return start(t, func(c *Config) {
			program := player(t, serving)
			program.Serves = map[string]int32{"web": fixedPort}
			c.Programs = []Program{player(t, served), program}
			c.Cluster, c.Node, c.InternalIP, c.Sandboxes, c.Registry = cluster, name, ip, sandboxes, registry
			c.PodServer = "https://127.65.2.1:6443"
		})
	}
	one, two := onNode("test", "node-1", "127.64.0.8"), onNode("test", "node-2", "127.64.0.9")
	other := onNode("other", "node-1", "127.64.0.10")
	pod := func(w *harness, name, image string) {
		p := fixedPod(name)
		p.Spec.NodeName, p.Spec.Containers[0].Image = w.cfg.Node, image
		w.create(p)
		w.awaitReady(name)
	}
	pod(two, "client", served+":v1")
	pod(other, "stranger", served+":v1")
	ask := func(w *harness, client, host string) string {
		addr, _ := registry.Address(w.cfg.Cluster, "default", client, fixedPort)
		const file = "/read?path=/proc/sys/kernel/hostname"
		text, err := get(fmt.Sprintf("http://%s/fetch?url=http://%s:%d%s", addr, host, fixedPort, file))
		if err != nil {
			return "error: " + err.Error()
		}
		return text
	}
	if got := ask(two, "client", "web.default.svc"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("before there is a Pod: %q", got)
	}
	pod(one, "server", serving+":v1")
	for _, host := range []string{"web.default.svc.cluster.local", "web.default.svc", "web.default"} {
		eventually(t, host+" leads to the Pod", func() (string, bool) { // programs look at the file every few seconds
			got := ask(two, "client", host)
			return got, got == "server\n"
		})
	}
	if got := askPod(t, two, "client", "/read", "path", "/etc/hosts"); got != hostsHead+
		"127.64.0.8\tweb.default.svc.cluster.local web.default.svc web.default\n" {
		t.Errorf("/etc/hosts of a Pod is %q", got)
	}
	if got := ask(other, "stranger", "web.default.svc"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("in another cluster: %q", got)
	}

	one.markDeleted("server", 1)
	eventually(t, "nothing listens for the Pod on its Node", func() (string, bool) {
		conn, err := net.Dial("tcp4", fmt.Sprintf("127.64.0.8:%d", fixedPort))
		if err == nil {
			conn.Close()
		}
		return "", err != nil
	})
	pod(two, "next", serving+":v1")
	eventually(t, "the name leads to the Pod's Node", func() (string, bool) {
		got := ask(two, "client", "web.default.svc.cluster.local")
		return got, got == "next\n"
	})
}

// A Pod that mounts something in the place of the file, or of its folder, has that.
func TestHostsOfAVolume(t *testing.T) {
	for path, want := range map[string]bool{"/etc": true, "/etc/": true, "/etc/hosts": true, "/etc/cni/net.d": false,
		"/data": false} {
		spec := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "own", MountPath: path}}}
		if got := mountsHosts(spec); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// The file stays the same one, which is mounted in containers, and has nothing of a longer content before.
func TestOverwrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	var before os.FileInfo
	for _, content := range []string{"a long content\n", "short\n", "a longer content\n"} {
		if err := overwrite(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
		is, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != content || before != nil && !os.SameFile(before, is) {
			t.Errorf("%q, %v", got, err)
		}
		before = is
	}
}

// What is in an emptyDir is there as long as the Pod is, also after the kubelet was ended; in memory it is not.
func TestKeptVolumes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubelet")
	edit := func(c *Config) { c.Dir, c.Programs = dir, []Program{player(t, served)} }
	w := start(t, edit)
	pod := newTestPod("keeps", served+":v1")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory}}},
	}
	w.create(pod)
	w.awaitReady("keeps")
	folder := func(w *harness, volume string) string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pods[pod.UID].volumeDir(volume)
	}
	disk, memory := filepath.Join(folder(w, "disk"), "file"), filepath.Join(folder(w, "memory"), "file")
	for _, file := range []string{disk, memory} {
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := filepath.Join(w.keptDir(), "of-a-pod-that-is-gone")
	w.stop()
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	again := startOn(t, w.api, edit)
	eventually(t, "the Pod's process runs again", func() (string, bool) { return "", len(again.processes()) == 1 })
	if data, err := os.ReadFile(disk); err != nil || string(data) != "kept" {
		t.Errorf("the volume has %q, %v", data, err)
	}
	absent := func(path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	if !absent(memory) {
		t.Error("the memory has outlived the kubelet")
	}
	eventually(t, "the volumes of a Pod that is gone are removed", func() (string, bool) { return "", absent(gone) })
	again.markDeleted("keeps", 0)
	eventually(t, "the Pod's volumes are removed with it", func() (string, bool) { return "", absent(filepath.Dir(disk)) })
}

// A program counts while it says so.
func TestProgramThatCountsNow(t *testing.T) {
	on := false
	programs := append([]Program{GiteaProgram("/programs", func() bool { return on })}, DefaultPrograms(nil)...)
	for _, want := range []string{StandIn, Real} {
		if p, ok := Match(programs, "docker.gitea.com/gitea:1.27.0-rootless"); !ok || p.Fidelity != want {
			t.Errorf("%v is %s, want %s", on, p.Fidelity, want)
		}
		on = true
	}
	for _, p := range programs {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}
