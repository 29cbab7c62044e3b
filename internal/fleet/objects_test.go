package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func exampleChange() Change {
	return Change{Fleet: "europe", Namespace: "fleets", Cluster: "alpha", Action: Apply, Image: "example.org/slipway:v1",
		Arguments: []string{"all", "--skip-doctor"}, Token: "europe-token-default", Retries: 3, Deadline: 90 * time.Minute,
		Files: map[string][]byte{ChangeConfigFile: []byte("clusterName: alpha\n"),
			"manifests/cluster.yaml": []byte("kind: Cluster\n")}}
}

// violations are what Pod Security's level restricted, with baseline below it, refuses in a Pod for Linux.
func violations(pod corev1.PodSpec) (all []string) {
	refuse := func(is bool, what string) {
		if is {
			all = append(all, what)
		}
	}
	refuse(pod.HostNetwork || pod.HostPID || pod.HostIPC, "host namespaces")
	for _, v := range pod.Volumes {
		s := v.VolumeSource
		refuse(s.ConfigMap == nil && s.EmptyDir == nil && s.Secret == nil && s.Projected == nil && s.DownwardAPI == nil,
			"volume "+v.Name)
	}
	security := pod.SecurityContext
	if security == nil {
		security = &corev1.PodSecurityContext{}
	}
	refuse(len(security.Sysctls) > 0, "sysctls")
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	refuse(len(pod.EphemeralContainers) > 0, "ephemeral containers, which this does not look at")
	for _, c := range containers {
		own := c.SecurityContext
		if own == nil {
			own = &corev1.SecurityContext{}
		}
		refuse(own.Privileged != nil && *own.Privileged, "privileged")
		refuse(own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation, "allowPrivilegeEscalation")
		refuse(own.Capabilities == nil || !slices.Contains(own.Capabilities.Drop, "ALL"), "capabilities: not all are dropped")
		refuse(own.Capabilities != nil && slices.ContainsFunc(own.Capabilities.Add, func(c corev1.Capability) bool {
			return c != "NET_BIND_SERVICE"
		}), "capabilities: one is added")
		nonRoot, user, seccomp := security.RunAsNonRoot, security.RunAsUser, security.SeccompProfile
		if own.RunAsNonRoot != nil {
			nonRoot = own.RunAsNonRoot
		}
		if own.RunAsUser != nil {
			user = own.RunAsUser
		}
		if own.SeccompProfile != nil {
			seccomp = own.SeccompProfile
		}
		refuse(nonRoot == nil || !*nonRoot, "runAsNonRoot")
		refuse(user != nil && *user == 0, "runAsUser is root")
		refuse(seccomp == nil || seccomp.Type != corev1.SeccompProfileTypeRuntimeDefault &&
			seccomp.Type != corev1.SeccompProfileTypeLocalhost, "seccompProfile")
		refuse(own.ProcMount != nil && *own.ProcMount != corev1.DefaultProcMount, "procMount")
		refuse(own.SELinuxOptions != nil || security.SELinuxOptions != nil, "seLinuxOptions")
		refuse(own.AppArmorProfile != nil || security.AppArmorProfile != nil, "appArmorProfile")
		refuse(own.WindowsOptions != nil || security.WindowsOptions != nil, "windowsOptions")
		refuse(slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }), "hostPort")
		refuse(c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil,
			"probes, which this does not look at")
	}
	return all
}

func TestPodsSatisfyPodSecurityRestricted(t *testing.T) {
	pods := func() map[string]corev1.PodSpec {
		return map[string]corev1.PodSpec{"a cluster's": exampleChange().Job().Spec.Template.Spec,
			"the coordinator's": Coordinator("europe", "fleets", "i", "0123456789", time.Hour).Spec.Template.Spec}
	}
	yes, no, root := true, false, int64(0)
	for name, pod := range pods() {
		if found := violations(pod); len(found) > 0 {
			t.Errorf("%s Pod violates restricted: %q", name, found)
		}
		for _, c := range pod.Containers {
			if s := c.SecurityContext.ReadOnlyRootFilesystem; s == nil || !*s {
				t.Errorf("%s Pod can write to its image's file system", name)
			}
			for _, m := range c.VolumeMounts {
				if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
					t.Errorf("%s Pod mounts %s, which is none of its volumes", name, m.Name)
				}
			}
		}
	}
	// Each rule is looked at.
	for what, breaks := range map[string]func(*corev1.PodSpec){
		"host namespaces":  func(p *corev1.PodSpec) { p.HostPID = true },
		"volume host":      func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, corev1.Volume{Name: "host"}) },
		"runAsNonRoot":     func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = &no },
		"runAsUser":        func(p *corev1.PodSpec) { p.SecurityContext.RunAsUser = &root },
		"seccompProfile":   func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"not all":          func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities.Drop = nil },
		"allowPrivilegeEs": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes },
		"privileged":       func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Privileged = &yes },
	} {
		for name, pod := range pods() {
			breaks(&pod)
			if found := violations(pod); len(found) != 1 || !strings.Contains(found[0], what) {
				t.Errorf("%s Pod with another %s: %q", name, what, found)
			}
		}
	}
	// The namespace asks for it.
	for _, o := range Shared("fleets") {
		if n, is := o.(*corev1.Namespace); is && n.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("namespace %s has the labels %v", n.Name, n.Labels)
		}
	}
}

func TestNameIsOfTheContent(t *testing.T) {
	was := exampleChange().Name()
	if again := exampleChange().Name(); again != was {
		t.Errorf("the same content has the names %s and %s", was, again)
	}
	consent := exampleChange()
	consent.Consent = true
	if consent.Name() != was {
		t.Error("consent changes the name")
	}
	if args := consent.Job().Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--yes") ||
		slices.Contains(exampleChange().Job().Spec.Template.Spec.Containers[0].Args, "--yes") {
		t.Errorf("with consent a run has the arguments %q", args)
	}
	// Every field but Consent is part of it: one that is added without being named here fails too.
	others := map[string]func(*Change){
		"Fleet": func(c *Change) { c.Fleet = "asia" }, "Namespace": func(c *Change) { c.Namespace = "other" },
		"Cluster": func(c *Change) { c.Cluster = "beta" }, "Action": func(c *Change) { c.Action = Destroy },
		"Image":     func(c *Change) { c.Image = "example.org/slipway:v2" },
		"Arguments": func(c *Change) { c.Arguments = []string{"all"} },
		"Files":     func(c *Change) { c.Files["manifests/cluster.yaml"] = []byte("kind: Other\n") },
		"Account":   func(c *Change) { c.Account = "other" }, "Key": func(c *Change) { c.Key = "other" },
		"Token": func(c *Change) { c.Token = "customer" }, "Retries": func(c *Change) { c.Retries = 4 },
		"Deadline": func(c *Change) { c.Deadline = time.Hour }, "Consent": nil,
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Change]()) {
		change, known := others[field.Name]
		if !known {
			t.Errorf("field %s is not looked at", field.Name)
		}
		if change == nil {
			continue
		}
		c := exampleChange()
		change(&c)
		if c.hash() == exampleChange().hash() || c.Name() == was {
			t.Errorf("another %s has the same hash, or name: %s", field.Name, c.Name())
		}
	}
}

func TestLongNames(t *testing.T) {
	long := strings.Repeat("c", 63)
	names := map[string]bool{}
	for _, pair := range [][2]string{
		{strings.Repeat("f", 20), long}, {strings.Repeat("f", 20), long[:62] + "d"}, // differ beyond the part that is kept
		{"a", "b-c"}, {"a-b", "c"}, // the same together
		{"a", strings.Repeat("c", 49) + "-" + "dd"}, // cut at a dash
		{"a", "1"},
	} {
		c := exampleChange()
		c.Fleet, c.Cluster = pair[0], pair[1]
		job := c.Job()
		if names[job.Name] {
			t.Errorf("%s is the name of two", job.Name)
		}
		names[job.Name] = true
		for _, complaint := range slices.Concat(validation.IsDNS1123Label(job.Name), validation.IsValidLabelValue(job.Name)) {
			t.Errorf("Job %s: %s", job.Name, complaint)
		}
		if strings.Contains(job.Name, "--") {
			t.Errorf("Job %s has two dashes", job.Name)
		}
		for key, value := range job.Labels {
			for _, complaint := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
				t.Errorf("label %s=%s: %s", key, value, complaint)
			}
			if job.Spec.Template.Labels[key] != value {
				t.Errorf("the Pods of %s do not have the label %s=%s", job.Name, key, value)
			}
		}
		files, err := c.ConfigMap()
		if err != nil || files.Name != job.Name || files.Namespace != job.Namespace {
			t.Errorf("ConfigMap %s/%s of Job %s: %v", files.Namespace, files.Name, job.Name, err)
		}
	}
}

func TestFilesOfAChange(t *testing.T) {
	c := exampleChange()
	files, err := c.ConfigMap()
	if err != nil {
		t.Fatal(err)
	}
	if files.Immutable == nil || !*files.Immutable || len(files.BinaryData) != 2 {
		t.Errorf("%+v", files)
	}
	pod := c.Job().Spec.Template.Spec
	volume := pod.Volumes[slices.IndexFunc(pod.Volumes,
		func(v corev1.Volume) bool { return v.ConfigMap != nil })].ConfigMap
	if volume.Name != files.Name || len(volume.Items) != 2 {
		t.Errorf("the Pod mounts %+v", volume)
	}
	for _, item := range volume.Items {
		if !bytes.Equal(files.BinaryData[item.Key], c.Files[item.Path]) || len(validation.IsConfigMapKey(item.Key)) > 0 {
			t.Errorf("%s is mounted from the key %s", item.Path, item.Key)
		}
	}
	args := strings.Join(pod.Containers[0].Args, " ")
	if args != "all --skip-doctor --config /config/bootstrap.yaml --state-dir /state" {
		t.Errorf("arguments %s", args)
	}
	// Just as much as fits, and a byte more.
	c.Files = map[string][]byte{ChangeConfigFile: make([]byte, mostConfig-len(ChangeConfigFile))}
	if files, err = c.ConfigMap(); err != nil {
		t.Error(err)
	} else if data, err := json.Marshal(files.ObjectMeta); err != nil || mostConfig+len(data) > 1<<20 {
		t.Errorf("with %d bytes of metadata it is larger than a ConfigMap: %v", len(data), err)
	}
	c.Files[ChangeConfigFile] = append(c.Files[ChangeConfigFile], 0)
	if _, err = c.ConfigMap(); err == nil || !strings.Contains(err.Error(), "cluster alpha") ||
		!strings.Contains(err.Error(), fmt.Sprint(mostConfig+1)) {
		t.Errorf("a byte too much: %v", err)
	}
	c.Files = map[string][]byte{"manifests/a_b.yaml": nil, "manifests_a/b.yaml": nil}
	if _, err = c.ConfigMap(); err == nil || !strings.Contains(err.Error(), "manifests_a_b.yaml") {
		t.Errorf("two files of one key: %v", err)
	}
}

// A run gets its secrets by references alone.
func TestSecretsAreReferences(t *testing.T) {
	c := exampleChange()
	want := map[string]string{settings.TokenVariable: "europe-token-default/token",
		settings.StateIdentityVariable: IdentitySecret + "/" + IdentitySecretKey}
	for _, v := range c.Job().Spec.Template.Spec.Containers[0].Env {
		if is, secret := want[v.Name]; secret {
			if v.Value != "" || v.ValueFrom == nil || v.ValueFrom.SecretKeyRef == nil ||
				v.ValueFrom.SecretKeyRef.Name+"/"+v.ValueFrom.SecretKeyRef.Key != is {
				t.Errorf("%s is %+v", v.Name, v)
			}
			delete(want, v.Name)
		} else if v.ValueFrom != nil {
			t.Errorf("%s is from %+v", v.Name, v.ValueFrom)
		}
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
	token := Secret("fleets", TokenSecretName("europe", "default"), TokenSecretKey, []byte("planted"))
	if token.Name != c.Token || token.Namespace != "fleets" || string(token.Data[TokenSecretKey]) != "planted" {
		t.Errorf("%+v", token)
	}
	c.Account, c.Key = AccountName("alpha"), KeyName("alpha")
	pod := c.Job().Spec.Template.Spec
	if is := pod.Containers[0].Env[1].ValueFrom.SecretKeyRef.Name; is != KeyName("alpha") ||
		pod.ServiceAccountName != AccountName("alpha") {
		t.Errorf("a run of cluster alpha has the key of Secret %s, and is %s", is, pod.ServiceAccountName)
	}
}

func TestJobBeginsByItsTurnAndTriesAgain(t *testing.T) {
	job := exampleChange().Job()
	s := job.Spec
	if s.Suspend == nil || !*s.Suspend || s.BackoffLimit == nil || *s.BackoffLimit != 3 ||
		s.ActiveDeadlineSeconds == nil || *s.ActiveDeadlineSeconds != 5400 || s.TTLSecondsAfterFinished != nil {
		t.Errorf("%+v", s)
	}
	// The API server takes a policy for failures with this restart policy only.
	if s.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("restart policy %s", s.Template.Spec.RestartPolicy)
	}
	action := func(exit int32, evicted bool) batchv1.PodFailurePolicyAction {
		for _, rule := range s.PodFailurePolicy.Rules { // the first that matches counts
			for _, c := range rule.OnPodConditions {
				if evicted && c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
					return rule.Action
				}
			}
			if codes := rule.OnExitCodes; codes != nil && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn &&
				*codes.ContainerName == s.Template.Spec.Containers[0].Name && slices.Contains(codes.Values, exit) {
				return rule.Action
			}
		}
		return batchv1.PodFailurePolicyActionCount
	}
	for _, tt := range []struct {
		exit    int32
		evicted bool
		want    batchv1.PodFailurePolicyAction
	}{
		{1, false, batchv1.PodFailurePolicyActionCount}, {130, false, batchv1.PodFailurePolicyActionCount},
		{2, false, batchv1.PodFailurePolicyActionFailJob},
		{130, true, batchv1.PodFailurePolicyActionIgnore}, {2, true, batchv1.PodFailurePolicyActionIgnore},
	} {
		if is := action(tt.exit, tt.evicted); is != tt.want {
			t.Errorf("exit code %d, evicted %t: %s, want %s", tt.exit, tt.evicted, is, tt.want)
		}
	}
}

func TestReadWhatAJobWasMadeOf(t *testing.T) {
	for _, action := range []string{Apply, Destroy} {
		c := exampleChange()
		c.Action = action
		files, err := c.ConfigMap()
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(files) // as it comes from an API server
		stored := &corev1.ConfigMap{}
		if err == nil {
			err = json.Unmarshal(data, stored)
		}
		if err != nil {
			t.Fatal(err)
		}
		if readVerbs, err := readChange(stored); err != nil || !reflect.DeepEqual(readVerbs, c) {
			t.Errorf("read %+v\nof   %+v\n%v", readVerbs, c, err)
		}
		for name, change := range map[string]func(*corev1.ConfigMap){
			"a file":      func(m *corev1.ConfigMap) { m.BinaryData[ChangeConfigFile] = []byte("clusterName: another") },
			"no file":     func(m *corev1.ConfigMap) { m.BinaryData = nil },
			"description": func(m *corev1.ConfigMap) { m.Annotations = nil },
		} {
			changed := stored.DeepCopy()
			change(changed)
			if _, err := readChange(changed); err == nil || !strings.Contains(err.Error(), stored.Name) {
				t.Errorf("%s was changed by hand: %v", name, err)
			}
		}
	}
}

func TestCoordinatorAndWhatJobsShare(t *testing.T) {
	job := Coordinator("europe", "fleets", "example.org/slipway:v1", "0123456789", 36*time.Hour)
	container := job.Spec.Template.Spec.Containers[0]
	if job.Name != "fleet-europe-0123456789" || job.Namespace != "fleets" || container.Image != "example.org/slipway:v1" ||
		strings.Join(container.Args, " ") != "fleet advance europe --namespace fleets --revision 0123456789" ||
		*job.Spec.ActiveDeadlineSeconds != 36*3600 {
		t.Errorf("%+v", job)
	}
	if job.Spec.Suspend != nil || job.Labels[FleetLabel] != "europe" {
		t.Errorf("suspended %v, labels %v", job.Spec.Suspend, job.Labels)
	}
	// It is none of a cluster: what lists the changes of clusters does not find it.
	if _, is := job.Labels[ClusterLabel]; is || len(container.Env) != 2 {
		t.Errorf("labels %v, environment %v", job.Labels, container.Env)
	}
	longest := Coordinator(strings.Repeat("f", 20), "fleets", "i", "0123456789", time.Hour)
	if complaints := validation.IsDNS1123Label(longest.Name); len(complaints) > 0 {
		t.Error(complaints)
	}
	names := map[string]bool{}
	for _, o := range Shared("fleets") {
		names[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName()] = true
		if b, is := o.(*rbacv1.ClusterRoleBinding); is && (len(b.Subjects) != 1 || b.Subjects[0].Namespace != "fleets" ||
			b.Subjects[0].Name != Administrator) {
			t.Errorf("the permissions are of %+v", b.Subjects)
		}
	}
	for _, want := range []string{"Namespace fleets", "ServiceAccount " + job.Spec.Template.Spec.ServiceAccountName,
		"ClusterRoleBinding fleets-slipway"} {
		if !names[want] {
			t.Errorf("%s is missing: %v", want, names)
		}
	}
}
