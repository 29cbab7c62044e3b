package caph

import rbacv1 "k8s.io/api/rbac/v1"

// Rules are what the manager's service account must be allowed in the management cluster. Its Role for leader election
// comes on top: LeaderElectionRules. In workload clusters it uses the administrator's kubeconfig.
func Rules() []rbacv1.PolicyRule {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "list", "watch", "create", "update",
			"patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "update"}},
		// From v1.0.9 on, for the annotation api.SkipNamespace; the original's role has it from v1.0.10 on.
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters", "clusters/status"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines", "machines/status"},
			Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{
			APIGroups: []string{infrastructure},
			Resources: []string{"hetznerclusters", "hcloudmachines", "hcloudmachinetemplates", "hcloudremediations"},
			Verbs:     all,
		},
		{
			APIGroups: []string{infrastructure},
			Resources: []string{"hetznerclusters/status", "hcloudmachines/status", "hcloudmachinetemplates/status",
				"hcloudremediations/status"},
			Verbs: []string{"get", "update", "patch"},
		},
		{
			APIGroups: []string{infrastructure},
			Resources: []string{"hetznerclusters/finalizers", "hcloudmachines/finalizers", "hcloudremediations/finalizers"},
			Verbs:     []string{"update"},
		},
	}
}

// LeaderElectionRules are the permissions that the manager needs in its own namespace, for --leader-elect.
func LeaderElectionRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}
