package fleet

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ServiceAccounts of a fleet's namespace, beside those of the clusters.
const (
	// Administrator may do everything in the management cluster: it installs the providers, and applies a fleet from Git.
	Administrator = "slipway"
	// Advancer begins the Jobs of a rollout.
	Advancer = "slipway-advance"

	accountPrefix = "slipway-cluster-"
	keyPrefix     = "slipway-state-key-"
)

// longestName is that of a namespace.
const longestName = 63

// AccountName is the ServiceAccount of a cluster's Jobs, in the fleet's namespace.
func AccountName(cluster string) string { return accountPrefix + cluster }

// KeyName is the Secret with the key to a cluster's state, in the fleet's namespace.
func KeyName(cluster string) string { return keyPrefix + cluster }

// StateNamespace is the namespace of a cluster's state. One that would be too long is cut, and ends with a hash.
func StateNamespace(namespace, cluster string) string {
	name := namespace + "-" + cluster
	if len(name) <= longestName {
		return name
	}
	return strings.TrimRight(name[:longestName-11], "-") + "-" + shortHash([]byte(name))
}

// Access is what the Jobs of one cluster can reach.
type Access struct {
	Namespace        string // the fleet's
	Cluster          string
	ClusterNamespace string // of the cluster's Cluster API objects
}

// clusterAPIGroups are those of Cluster API and of its providers for Talos and Hetzner. Those that only the core
// provider's controllers write, such as addons, are among them: a move of the cluster lists them.
var clusterAPIGroups = []string{"cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io",
	"infrastructure.cluster.x-k8s.io", "addons.cluster.x-k8s.io", "ipam.cluster.x-k8s.io", "runtime.cluster.x-k8s.io"}

var (
	readVerbs = []string{"get", "list", "watch"}
	write     = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

func rule(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

// Objects are the namespaces that the cluster's Jobs work in, their ServiceAccount and its permissions. RBAC cannot
// restrict the creation of a Secret to names, nor a list: so the state is in a namespace of its own. The namespaces are
// created here, so that no Job of a cluster has to create one. Roles and bindings have the label of the cluster: what
// Slipway made for a cluster does not keep the cluster's namespace.
func (a Access) Objects() []client.Object {
	state, account := StateNamespace(a.Namespace, a.Cluster), AccountName(a.Cluster)
	clusterWide, reader := a.Namespace+"-"+account, readerName(a.Namespace) // the clusters share the reader
	in := func(namespace string) metav1.ObjectMeta { return meta(namespace, account, a.Cluster) }
	all := []client.Object{
		namespaceOf(state, map[string]string{restricted: restrictedLevel}),
		namespaceOf(a.ClusterNamespace, nil),
		accountOf(a.Namespace, account),
		role(in(state), rule(write, "", "secrets"), rule(write, "coordination.k8s.io", "leases")),
		role(in(a.ClusterNamespace), a.rules()...),
		// Runs of one Hetzner project share its rate limit by Leases.
		role(in(a.Namespace), rule(write, "coordination.k8s.io", "leases")),
		&rbacv1.ClusterRole{TypeMeta: kind(rbacVersion, "ClusterRole"), ObjectMeta: meta("", clusterWide, a.Cluster),
			Rules: []rbacv1.PolicyRule{
				{Verbs: []string{"get", "patch", "delete"}, APIGroups: []string{""}, Resources: []string{"namespaces"},
					ResourceNames: []string{a.ClusterNamespace}},
				{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"},
					ResourceNames: []string{metav1.NamespaceSystem, state}},
			}},
	}
	for _, namespace := range []string{state, a.ClusterNamespace, a.Namespace} {
		all = append(all, binding(in(namespace), account, subject(a.Namespace, account)))
	}
	return append(all, binding(meta("", clusterWide, a.Cluster), clusterWide, subject(a.Namespace, account)),
		binding(meta("", reader+"-"+a.Cluster, a.Cluster), reader, subject(a.Namespace, account)))
}

// rules are those in the namespace of the cluster's objects. Reading all of it is what a run needs to find out,
// before it deletes the namespace, whether something else is in it.
func (a Access) rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(readVerbs, "*", "*"),
		rule(write, "", "secrets", "configmaps", "events"),
		rule(write, "coordination.k8s.io", "leases"),
		rule(write, "events.k8s.io", "events"),
		{Verbs: write, APIGroups: clusterAPIGroups, Resources: []string{"*"}},
	}
}

// meta is that of what belongs to a cluster, or without one to all.
func meta(namespace, name, cluster string) metav1.ObjectMeta {
	labels := map[string]string{managedBy: application}
	if cluster != "" {
		labels[ClusterLabel] = cluster
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

func role(m metav1.ObjectMeta, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{TypeMeta: kind(rbacVersion, "Role"), ObjectMeta: m, Rules: rules}
}

// binding gives a Role of its namespace, or without one a ClusterRole.
func binding(m metav1.ObjectMeta, role string, to rbacv1.Subject) client.Object {
	ref := rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "Role", Name: role}
	if m.Namespace != "" {
		return &rbacv1.RoleBinding{TypeMeta: kind(rbacVersion, "RoleBinding"), ObjectMeta: m, RoleRef: ref,
			Subjects: []rbacv1.Subject{to}}
	}
	ref.Kind = "ClusterRole"
	return &rbacv1.ClusterRoleBinding{TypeMeta: kind(rbacVersion, "ClusterRoleBinding"), ObjectMeta: m, RoleRef: ref,
		Subjects: []rbacv1.Subject{to}}
}

const (
	rbacGroup       = "rbac.authorization.k8s.io"
	rbacVersion     = rbacGroup + "/v1"
	restricted      = "pod-security.kubernetes.io/enforce"
	restrictedLevel = "restricted"
)

func subject(namespace, account string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account}
}

func namespaceOf(name string, labels map[string]string) *corev1.Namespace {
	n := &corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta("", name, "")}
	maps.Copy(n.Labels, labels)
	return n
}

// accountOf is a ServiceAccount whose token is mounted only into the Pods that ask for it.
func accountOf(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), AutomountServiceAccountToken: new(false),
		ObjectMeta: meta(namespace, name, "")}
}

// readerName is the ClusterRole by which the Jobs of all clusters of a namespace read what is not of one cluster.
func readerName(namespace string) string { return namespace + "-slipway-reader" }

// readerRole lets a run see that the providers are installed and serve, and that a move of its cluster takes none of
// another's objects along. It has no Secrets in it.
func readerRole(namespace string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{TypeMeta: kind(rbacVersion, "ClusterRole"),
		ObjectMeta: meta("", readerName(namespace), ""),
		Rules: []rbacv1.PolicyRule{
			rule(readVerbs, "apiextensions.k8s.io", "customresourcedefinitions"),
			rule(readVerbs, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
			rule(readVerbs, "clusterctl.cluster.x-k8s.io", "providers"),
			rule(readVerbs, "apps", "deployments"),
			rule(readVerbs, "cluster.x-k8s.io", "clusters"),
		}}
}

// Shared are the objects that the Jobs of all clusters of a namespace use, but for Secrets. The administrator
// installs Cluster API's providers: that is to create their definitions and permissions.
func Shared(namespace string) []client.Object {
	return []client.Object{
		namespaceOf(namespace, map[string]string{restricted: restrictedLevel}),
		accountOf(namespace, Administrator),
		binding(meta("", namespace+"-slipway", ""), "cluster-admin", subject(namespace, Administrator)),
		accountOf(namespace, Advancer),
		role(meta(namespace, Advancer, ""),
			rule([]string{"get", "list", "watch", "patch"}, "batch", "jobs"),
			rule(readVerbs, "", "pods"),
			// Not create: what a Job is made from stays what the operator has applied.
			rule([]string{"get", "list", "watch", "update", "patch", "delete"}, "", "configmaps")),
		binding(meta(namespace, Advancer, ""), Advancer, subject(namespace, Advancer)),
		readerRole(namespace),
	}
}

// ProviderReading lets the Jobs of the clusters see why a provider does not serve, in the provider's namespace.
func ProviderReading(namespace, provider string) []client.Object {
	m := meta(provider, namespace+"-slipway", "")
	return []client.Object{role(m, rule(readVerbs, "", "pods", "events")), binding(m, m.Name,
		rbacv1.Subject{APIGroup: rbacGroup, Kind: "Group", Name: "system:serviceaccounts:" + namespace})}
}
