package kubelet

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const served = "example.org/served"

// serve maps the image to a server on port 8080.
func serve(t *testing.T, more ...string) func(*Config) {
	program := player(t, served, append([]string{"-address=127.0.0.1:{port:8080}"}, more...)...)
	return func(c *Config) { c.Programs = []Program{program} }
}

func servedPod(name string) *corev1.Pod {
	pod := newTestPod(name, served+":v1")
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")},
	}}
	return pod
}

// self requests the arguments and environment of a Pod's process.
func self(t *testing.T, w *harness, pod string) given {
	t.Helper()
	addr, ok := w.cfg.Registry.Address("test", "default", pod, 8080)
	if !ok {
		t.Fatalf("port 8080 of Pod %s is not registered", pod)
	}
	answer, err := http.Get("http://" + addr + "/self")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var g given
	if err := json.NewDecoder(answer.Body).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestPodRunsAsAProcess(t *testing.T) {
	t.Setenv("OF_THE_DAEMON", "must not be inherited")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: "default"},
		Data:       map[string][]byte{"token": []byte("planted"), "more": []byte("m")},
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"},
		Data: map[string]string{"level": "info"}}
	w := start(t, func(c *Config) {
		serve(t, "-ignored={namespace}/{pod}/{node} {proxy} {ca} $(LEVEL)")(c)
		c.Programs[0].Env = map[string]string{"OVER": "program", "FOLDER": "{dir:/keys/sub}"}
		c.PodEnv = map[string]string{"HTTPS_PROXY": "http://127.0.0.1:8443", "SSL_CERT_FILE": "/ca.crt"}
	}, secret, settings)

	pod := servedPod("web")
	pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "keys", Items: []corev1.KeyToPath{{Key: "token", Path: "sub/token"}},
	}}}}
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
	main.Command, main.Args = []string{"/web", "-exit=-1"}, []string{"-say=$(TOKEN) $$(TOKEN) $(NONE)"}
	main.EnvFrom = []corev1.EnvFromSource{{Prefix: "CFG_", ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}}
	main.Env = []corev1.EnvVar{
		{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "token",
		}}},
		{Name: "LEVEL", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "level",
		}}},
		{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "no", Optional: ptr.To(true),
		}}},
		{Name: "APP",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
		{Name: "HOST", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
		{Name: "CPU",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
		{Name: "OVER", Value: "container"},
	}
	w.create(pod)
	got := w.awaitReady("web")

	if got.Status.Phase != corev1.PodRunning || got.Status.HostIP != "127.0.0.9" || got.Status.PodIP != "" ||
		got.Status.StartTime == nil {
		t.Errorf("status %+v", got.Status)
	}
	for _, kind := range kubeletConditions {
		if condition(got, kind) != corev1.ConditionTrue {
			t.Errorf("condition %s is %q", kind, condition(got, kind))
		}
	}
	g := self(t, w, "web")
	dir := filepath.Join(w.podsDir(), "web-uid", "volumes", "keys")
	wantArgs := []string{"-exit=-1", "-say=planted $(TOKEN) $(NONE)"}
	if !slices.Equal(g.Args[:2], wantArgs) ||
		g.Args[3] != "-ignored=default/web/node-1 http://127.0.0.1:8443 /ca.crt info" {
		t.Errorf("arguments %q; want first %q", g.Args, wantArgs)
	}
	for _, want := range []string{
		"TOKEN=planted", "LEVEL=info", "CFG_level=info", "APP=web", "HOST=127.0.0.9", "CPU=64", "OVER=program",
		"HTTPS_PROXY=http://127.0.0.1:8443", "SSL_CERT_FILE=/ca.crt", "FOLDER=" + filepath.Join(dir, "sub"),
	} {
		if !slices.Contains(g.Env, want) {
			t.Errorf("environment %q lacks %q", g.Env, want)
		}
	}
	for _, e := range g.Env {
		if strings.HasPrefix(e, "OF_THE_DAEMON=") || strings.HasPrefix(e, "ABSENT=") {
			t.Errorf("environment has %q", e)
		}
	}
	if content, err := os.ReadFile(filepath.Join(dir, "sub", "token")); err != nil || string(content) != "planted" {
		t.Errorf("volume: %q, %v", content, err)
	}
	private(t, w.cfg.Dir)

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.podsDir(), "web-uid", "volumes", identityVolume,
		"kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	authority, caErr := os.ReadFile(config.CAFile) // a file, as a Pod's own configuration has it
	token, err := os.ReadFile(config.BearerTokenFile)
	if err := errors.Join(err, caErr); err != nil || string(token) != "token-1" ||
		config.Host != "https://127.0.0.9:6443" || string(authority) != "authority" {
		t.Errorf("kubeconfig: host %s, token %q, %v", config.Host, token, err)
	}

	status := w.Status()
	if len(status.Pods) != 1 || status.Pods[0].Containers[0].PID == 0 || status.Pods[0].Containers[0].Fidelity != Real {
		t.Errorf("the kubelet says %+v", status)
	}
}

// private fails where anything below dir may be read by others.
func private(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMissingSecretKeepsThePodWaiting(t *testing.T) {
	w := start(t, serve(t))
	mounts := servedPod("mounts")
	mounts.Spec.Volumes = []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}}}}
	names := newTestPod("names", "example.org/unknown") // simulated Pods wait as well
	names.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A",
		ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "a",
		}}}}
	w.create(mounts)
	w.create(names)
	reason := func(want, message string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return p.Status.Phase == corev1.PodPending && len(s) == 1 && s[0].State.Waiting != nil &&
				s[0].State.Waiting.Reason == want && strings.Contains(s[0].State.Waiting.Message, message)
		}
	}
	w.awaitPod("mounts", "the volume is missing", reason("ContainerCreating", `secret "late" not found`))
	w.awaitPod("names", "the variable is missing", reason("CreateContainerConfigError", `secret "late" not found`))

	eventually(t, "the Secret is watched", func() (string, bool) { return "", watches(w.api, "secrets") })
	secrets := w.api.CoreV1().Secrets("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "default"},
		Data: map[string][]byte{"b": nil}}
	secret, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitReady("mounts")
	w.awaitPod("names", "the key is missing",
		reason("CreateContainerConfigError", "couldn't find key a in Secret default/late"))
	secret.Data["a"] = []byte("1")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitReady("names")

	// Changes and deletions in the Secret appear in the folder.
	dir := filepath.Join(w.podsDir(), "mounts-uid", "volumes", "v")
	secret.Data = map[string][]byte{"c": []byte("2")}
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the folder follows", func() (string, bool) {
		content, err := os.ReadFile(filepath.Join(dir, "c"))
		_, gone := os.Stat(filepath.Join(dir, "a"))
		return string(content), err == nil && string(content) == "2" && os.IsNotExist(gone)
	})
}

func TestSimulatedPods(t *testing.T) {
	w := start(t, nil)
	w.create(newTestPod("stays", "example.org/unknown"))
	once := newTestPod("once", "example.org/unknown")
	once.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	once.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job",
		Controller: ptr.To(true)}}
	w.create(once)
	w.awaitReady("stays")
	done := w.awaitPod("once", "the Job's Pod succeeds",
		func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	if s := done.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 0 || s.Reason != "Completed" {
		t.Errorf("its container: %+v", done.Status.ContainerStatuses)
	}
	if len(w.processes()) != 0 {
		t.Errorf("processes %v for simulated Pods", w.processes())
	}
	for _, p := range w.Status().Pods {
		if p.Containers[0].Fidelity != Simulated {
			t.Errorf("the kubelet says %+v", p)
		}
	}
}

func TestCrashingContainerIsRestarted(t *testing.T) {
	crash := player(t, "example.org/crash", "-exit=3", "-say=last words")
	w := start(t, func(c *Config) { c.Programs = []Program{crash} })
	pod := newTestPod("crash", "example.org/crash")
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	w.create(pod)
	w.awaitPod("crash", "the third restart", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount >= 3 && s[0].State.Waiting != nil &&
			s[0].State.Waiting.Reason == "CrashLoopBackOff" &&
			s[0].LastTerminationState.Terminated != nil && s[0].LastTerminationState.Terminated.ExitCode == 3 &&
			strings.Contains(s[0].LastTerminationState.Terminated.Message, "last words") &&
			p.Status.Phase == corev1.PodRunning && condition(p, corev1.PodReady) == corev1.ConditionFalse
	})

	never := newTestPod("never", "example.org/crash")
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(never)
	failed := w.awaitPod("never", "the Pod fails", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if s := failed.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.State.Terminated.ExitCode != 3 ||
		s.State.Terminated.Message != "" {
		t.Errorf("its container: %+v", s)
	}
}

func TestUnhealthyContainerIsRestarted(t *testing.T) {
	w := start(t, serve(t))
	pod := servedPod("web")
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)},
		}}
	w.create(pod)
	w.awaitReady("web")
	addr, _ := w.cfg.Registry.Address("test", "default", "web", 8080)
	answer, err := http.Get("http://" + addr + "/sick")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	w.awaitPod("web", "it is restarted and ready again", func(p *corev1.Pod) bool {
		return isReady(p.Status) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
}

func TestProbeOfAnUndeclaredPortIsSaid(t *testing.T) {
	w := start(t, serve(t))
	pod := servedPod("web")
	pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.FromInt32(9999)
	w.create(pod)
	w.awaitReady("web")
	eventually(t, "an event says so", func() (string, bool) {
		events, err := w.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return "", slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "Unprobed" && strings.Contains(e.Message, "port 9999")
		})
	})
}

func TestInitContainersAndSidecars(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order")
	write := player(t, "example.org/write", "-append="+file)
	w := start(t, func(c *Config) { c.Programs = []Program{write} })
	container := func(name, exit string) corev1.Container {
		return corev1.Container{Name: name, Image: "example.org/write", Args: []string{"-say=" + name, "-exit=" + exit}}
	}
	pod := newTestPod("steps", "example.org/write")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	sidecar := container("sidecar", "-1")
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{container("first", "0"), sidecar, container("third", "0")}
	pod.Spec.Containers = []corev1.Container{container("main", "0")}
	w.create(pod)
	done := w.awaitPod("steps", "the Pod succeeds",
		func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	if condition(done, corev1.PodInitialized) == "" || len(done.Status.InitContainerStatuses) != 3 {
		t.Errorf("status %+v", done.Status)
	}
	content, err := os.ReadFile(file)
	order := strings.Fields(string(content))
	// The sidecar is started before the third, but which of the two writes first is theirs.
	if err != nil || len(order) != 4 || order[0] != "first" || order[3] != "main" {
		t.Errorf("order %q, %v", order, err)
	}
	eventually(t, "the sidecar is stopped", func() (string, bool) { return "", len(w.processes()) == 0 })

	broken := newTestPod("broken", "example.org/write")
	broken.Spec.RestartPolicy = corev1.RestartPolicyNever
	broken.Spec.InitContainers = []corev1.Container{container("fails", "1")}
	w.create(broken)
	w.awaitPod("broken", "the Pod fails", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
}

func TestTokensAreRefreshed(t *testing.T) {
	api := fake.NewClientset()
	w := startOn(t, api, serve(t))
	pod := servedPod("web")
	pod.Spec.Volumes = []corev1.Volume{{Name: "token",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: "token", ExpirationSeconds: ptr.To[int64](1), Audience: "somebody",
			}}},
		}}}}
	w.create(pod)
	w.awaitReady("web")
	file := filepath.Join(w.podsDir(), "web-uid", "volumes", "token", "token")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "a new token is in the folder", func() (string, bool) {
		now, err := os.ReadFile(file)
		return string(now), err == nil && string(now) != string(first)
	})
	if time.Since(began) > 10*time.Second {
		t.Errorf("a token that is good for 1 s was renewed after %s", time.Since(began))
	}
}

// Where nothing is to be simulated, a container without a program does not start.
func TestUnmappedImageIsRefused(t *testing.T) {
	w := start(t, func(c *Config) { c.RefuseUnmapped = true })
	w.create(newTestPod("unmapped", "example.org/unknown:v1"))
	w.awaitPod("unmapped", "the image is refused", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && !s[0].Ready && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImagePull" &&
			strings.Contains(s[0].State.Waiting.Message, "no program runs for image example.org/unknown:v1")
	})
}

func TestUnrunnablePrograms(t *testing.T) {
	w := start(t, func(c *Config) {
		c.Bin = "/nonexistent"
		c.Programs = []Program{
			{Image: "example.org/absent", Exec: "absent"},
			player(t, "example.org/folder", "-certs={dir:/nowhere}"),
		}
	})
	w.create(newTestPod("absent", "example.org/absent"))
	w.create(newTestPod("folder", "example.org/folder"))
	says := func(want string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerError" &&
				strings.Contains(s[0].State.Waiting.Message, want)
		}
	}
	w.awaitPod("absent", "the program is missing", says(`program "absent" for image example.org/absent`))
	w.awaitPod("folder", "the folder is missing", says("mounts nothing at /nowhere"))
}
