package releases

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// manifest are the objects of a CronJob.
type manifest struct {
	account corev1.ServiceAccount
	role    rbacv1.ClusterRole // or a Role
	binding rbacv1.ClusterRoleBinding
	job     batchv1.CronJob
}

func written(t *testing.T, j CronJob) (m manifest) {
	t.Helper()
	var text strings.Builder
	if err := j.Write(&text); err != nil {
		t.Fatal(err)
	}
	docs, err := kube.Documents([]byte(text.String()))
	if err != nil || len(docs) != 4 {
		t.Fatalf("%d documents, %v: %s", len(docs), err, text.String())
	}
	for i, into := range []any{&m.account, &m.role, &m.binding, &m.job} {
		if err := yaml.UnmarshalStrict(docs[i], into); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func cronJob() CronJob {
	return CronJob{Image: "registry.example/slipway:v1", Schedule: "*/10 * * * *", RunIn: "flux-system",
		Threshold: DefaultThreshold}
}

// call is what RBAC sees of a request: "patch helm.toolkit.fluxcd.io helmreleases/status"; empty: every account may.
func call(r *http.Request) string {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(words) > 3 && words[0] == "apis":
		group, words = words[1], words[3:]
	case len(words) > 2 && words[0] == "api":
		words = words[2:]
	default: // discovery and /version
		return ""
	}
	if words[0] == "namespaces" && len(words) > 2 {
		words = words[2:]
	}
	verb := map[string]string{http.MethodGet: "list", http.MethodPatch: "patch", http.MethodDelete: "delete",
		http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	if len(words) > 1 && r.Method == http.MethodGet {
		verb = "get"
	}
	resource := words[0]
	if len(words) > 2 {
		resource += "/" + words[2]
	}
	return fmt.Sprintf("%s %q %s", verb, group, resource)
}

// TestRBAC: the account may do exactly what a run does.
func TestRBAC(t *testing.T) {
	w := newWorld(t)
	w.pendingRelease("pending", "pending-upgrade")
	w.lost("lost")
	w.healthy("healthy")
	w.done(options())
	done := map[string]bool{}
	for _, r := range w.asked {
		if c := call(r); c != "" {
			done[c] = true
		}
	}
	allowed := map[string]bool{}
	for _, rule := range written(t, cronJob()).role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					allowed[fmt.Sprintf("%s %q %s", verb, group, resource)] = true
				}
			}
		}
	}
	if a, d := slices.Sorted(maps.Keys(allowed)), slices.Sorted(maps.Keys(done)); !slices.Equal(a, d) || len(a) == 0 {
		t.Errorf("the account may\n%s\na run does\n%s", strings.Join(a, "\n"), strings.Join(d, "\n"))
	}
}

func TestCronJob(t *testing.T) {
	j := cronJob()
	m := written(t, j)
	pod := m.job.Spec.JobTemplate.Spec.Template.Spec
	if m.role.Kind != "ClusterRole" || m.binding.Kind != "ClusterRoleBinding" || m.binding.RoleRef.Kind != "ClusterRole" ||
		m.binding.RoleRef.Name != m.role.Name || m.binding.Subjects[0].Name != m.account.Name ||
		m.binding.Subjects[0].Namespace != m.account.Namespace || m.account.Namespace != "flux-system" ||
		pod.ServiceAccountName != m.account.Name || m.job.Namespace != m.account.Namespace {
		t.Errorf("%+v", m)
	}
	if c := pod.Containers[0]; c.Image != j.Image || strings.Join(c.Args, " ") != "recover-releases --in-cluster --threshold 5m0s" ||
		m.job.Spec.Schedule != j.Schedule || m.job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent {
		t.Errorf("%+v", m.job.Spec)
	}
	j.Namespace, j.Threshold = "apps", 90*time.Second
	m = written(t, j)
	if m.role.Kind != "Role" || m.role.Namespace != "apps" || m.binding.Kind != "RoleBinding" || m.binding.Namespace != "apps" ||
		m.binding.RoleRef.Kind != "Role" || m.account.Namespace != "flux-system" {
		t.Errorf("of one namespace: %+v", m)
	}
	if c := m.job.Spec.JobTemplate.Spec.Template.Spec.Containers[0]; strings.Join(c.Args, " ") !=
		"recover-releases --in-cluster --threshold 1m30s --namespace apps" {
		t.Errorf("%q", c.Args)
	}
	for _, change := range []func(*CronJob){
		func(j *CronJob) { j.Image = "" }, func(j *CronJob) { j.Image = "a b" }, func(j *CronJob) { j.Image = "a\"\nb: c" },
		func(j *CronJob) { j.Namespace = "a\nb" }, func(j *CronJob) { j.RunIn = "A" },
	} {
		j := cronJob()
		change(&j)
		if err := j.Write(&strings.Builder{}); err == nil {
			t.Errorf("%+v is taken", j)
		}
	}
}
