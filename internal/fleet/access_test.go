package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is what an API server asks its authorizer.
type request struct{ account, verb, group, resource, namespace, name string }

// allowed evaluates roles and their bindings as the API server's authorizer does.
func allowed(all []client.Object, r request) bool {
	rules := func(kind, namespace, name string) []rbacv1.PolicyRule {
		for _, o := range all {
			switch role := o.(type) {
			case *rbacv1.Role:
				if kind == "Role" && role.Namespace == namespace && role.Name == name {
					return role.Rules
				}
			case *rbacv1.ClusterRole:
				if kind == "ClusterRole" && role.Name == name {
					return role.Rules
				}
			}
		}
		if kind == "ClusterRole" && name == "cluster-admin" {
			return []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
		}
		return nil
	}
	of := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && s.Name == r.account && s.Namespace == "fleets" ||
				s.Kind == "Group" && s.Name == "system:serviceaccounts:fleets"
		})
	}
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	for _, o := range all {
		var granted []rbacv1.PolicyRule
		switch b := o.(type) {
		case *rbacv1.RoleBinding:
			if b.Namespace == r.namespace && of(b.Subjects) {
				granted = rules(b.RoleRef.Kind, b.Namespace, b.RoleRef.Name)
			}
		case *rbacv1.ClusterRoleBinding:
			if of(b.Subjects) {
				granted = rules(b.RoleRef.Kind, "", b.RoleRef.Name)
			}
		}
		for _, rule := range granted {
			if has(rule.Verbs, r.verb) && has(rule.APIGroups, r.group) && has(rule.Resources, r.resource) &&
				(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.name)) {
				return true
			}
		}
	}
	return false
}

// The Jobs of one cluster reach what is that cluster's, and nothing of another one or of the fleet.
func TestWhatTheJobsOfAClusterReach(t *testing.T) {
	all := Shared("fleets")
	for _, cluster := range []string{"alpha", "beta"} {
		all = append(all, Access{Namespace: "fleets", Cluster: cluster, ClusterNamespace: cluster}.Objects()...)
	}
	all = append(all, ProviderReading("fleets", "capi-system")...)
	all = append(all, ProviderReading("fleets", "caph-system")...)
	alpha := AccountName("alpha")
	const capi = "cluster.x-k8s.io"
	for want, requests := range map[bool][]request{
		true: {
			{alpha, "create", "", "secrets", "fleets-alpha", ""}, {alpha, "list", "", "secrets", "fleets-alpha", ""},
			{alpha, "patch", capi, "clusters", "alpha", ""}, {alpha, "create", "", "secrets", "alpha", ""},
			{alpha, "list", "apps", "deployments", "alpha", ""}, {alpha, "delete", "", "namespaces", "", "alpha"},
			{alpha, "get", "", "namespaces", "", "kube-system"}, {alpha, "create", "coordination.k8s.io", "leases", "fleets",
				""},
			{alpha, "list", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
			{alpha, "list", "", "pods", "capi-system", ""}, {alpha, "list", "", "pods", "caph-system", ""},
			{Advancer, "patch", "batch", "jobs", "fleets", ""}, {Administrator, "create", "", "secrets", "beta", ""},
		},
		false: {
			{alpha, "get", "", "secrets", "fleets-beta", ""}, {alpha, "list", "", "secrets", "beta", ""},
			{alpha, "get", "", "secrets", "fleets", KeyName("alpha")}, {alpha, "get", "", "secrets", "fleets", IdentitySecret},
			{alpha, "list", "", "secrets", "", ""}, {alpha, "list", "", "secrets", "capi-system", ""},
			{alpha, "list", "", "secrets", "caph-system", ""},
			{alpha, "patch", capi, "clusters", "beta", ""}, {alpha, "create", "", "pods", "alpha", ""},
			{alpha, "create", "", "pods", "fleets", ""}, {alpha, "create", "batch", "jobs", "fleets", ""},
			{alpha, "patch", "", "configmaps", "fleets", ""}, {alpha, "create", rbacGroup, "rolebindings", "alpha", ""},
			{alpha, "patch", rbacGroup, "roles", "fleets-alpha", ""}, {alpha, "create", "", "namespaces", "", ""},
			{alpha, "delete", "", "namespaces", "", "beta"}, {alpha, "delete", "", "namespaces", "", "fleets-alpha"},
			{alpha, "create", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
			{alpha, "create", "", "serviceaccounts/token", "fleets", Administrator},
			{Advancer, "create", "batch", "jobs", "fleets", ""}, {Advancer, "get", "", "secrets", "fleets", ""},
			{Advancer, "create", "", "configmaps", "fleets", ""}, {Advancer, "get", "", "secrets", "fleets-alpha", ""},
		},
	} {
		for _, r := range requests {
			if is := allowed(all, r); is != want {
				t.Errorf("%+v is allowed: %t", r, is)
			}
		}
	}
}

// A token of an account is mounted only into the Pods that ask for it.
func TestTokensOfAccountsAreNotMountedByThemselves(t *testing.T) {
	access := Access{Namespace: "fleets", Cluster: "alpha", ClusterNamespace: "alpha"}
	accounts := 0
	for _, o := range append(Shared("fleets"), access.Objects()...) {
		if account, is := o.(*corev1.ServiceAccount); is {
			accounts++
			if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
				t.Errorf("the token of %s is mounted into every Pod of the account", account.Name)
			}
		}
	}
	_, providers, err := ProvidersJob("demo", "fleets", "i", nil, time.Hour)
	if err != nil || accounts != 3 {
		t.Errorf("%d accounts, %v", accounts, err)
	}
	if pod := providers.Spec.Template.Spec; pod.ServiceAccountName != Administrator || len(violations(pod)) > 0 ||
		len(pod.Containers[0].Env) != 2 || providers.Spec.Suspend == nil || !*providers.Spec.Suspend {
		t.Errorf("the Job that installs the providers: %+v", providers.Spec)
	}
	if pod := Coordinator("demo", "fleets", "i", "r", time.Hour).Spec.Template.Spec; pod.ServiceAccountName != Advancer {
		t.Errorf("the Job that begins the others is %s", pod.ServiceAccountName)
	}
}

func TestStateNamespaces(t *testing.T) {
	long, names := strings.Repeat("c", 62), map[string]bool{}
	for _, cluster := range []string{"alpha", long + "a", long + "b"} {
		name := StateNamespace("slipway", cluster)
		if names[name] || len(validation.IsDNS1123Label(name)) > 0 {
			t.Errorf("the state of %s is in namespace %s", cluster, name)
		}
		names[name] = true
	}
}

// A change that an earlier release has written is read, and is the same.
func TestAChangeOfAnEarlierRelease(t *testing.T) {
	if name := exampleChange().Name(); name != "europe-alpha-62fc6c97dd" {
		t.Errorf("a change without an account has the name %s, which is not that of earlier releases", name)
	}
}
