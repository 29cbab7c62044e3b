// Package certmanager stands in for cert-manager v1.19, which can take its place, as far as Cluster API's providers
// use it: Issuers and ClusterIssuers that sign by themselves or with a certificate authority from a Secret,
// Certificates that become Secrets with tls.crt, tls.key and ca.crt and are renewed in time or when their spec changes,
// and the injection of a Certificate's authority into webhooks, CRD conversions and APIServices (annotation
// cert-manager.io/inject-ca-from). Controller and cainjector are one program here, which takes the controller's flags.
//
// Not simulated: other issuers (ACME, Vault, Venafi), CertificateRequests and their approval, key stores, literal
// subjects, and the webhook. Where an Issuer or Certificate asks for such, its condition Ready says so.
package certmanager

import rbacv1 "k8s.io/api/rbac/v1"

// Rules are the permissions that its service account needs.
func Rules() []rbacv1.PolicyRule {
	write := []string{"get", "list", "watch", "create", "update", "patch"}
	inject := []string{"get", "list", "watch", "update", "patch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"certificates", "issuers", "clusterissuers"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{group}, Resources: []string{"certificates/status", "issuers/status", "clusterissuers/status"},
			Verbs: []string{"update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: append(write, "delete")},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: write},
		{
			APIGroups: []string{"admissionregistration.k8s.io"},
			Resources: []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}, Verbs: inject,
		},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: inject},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: inject},
	}
}
