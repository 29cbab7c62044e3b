package judge

import (
	"regexp"
	"slices"
)

// allowance is something in which the end states of two good runs may differ. What
// is not listed in allowances is compared.
type allowance struct {
	why    string
	kinds  []string       // not compared at all
	fields []string       // of any object of a cluster, by their path; "*" is any one key or every entry of a list
	cloud  []string       // of any resource of the cloud, likewise
	text   *regexp.Regexp // replaced in every string, key and name …
	by     string         // … by this
	taints *regexp.Regexp // keys of a Node's taints that are not compared
	states []string       // kinds whose conditions are not compared
	files  []string       // patterns of names in the state folder that are not compared
}

// allowances are all permitted differences between two good runs.
func allowances() []allowance {
	return []allowance{
		{why: "each API server assigns them, and counts what it stores",
			fields: []string{"metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
				"metadata.managedFields",
				"metadata.generateName", "metadata.ownerReferences.*.uid", "spec.infrastructureRef.uid",
				"spec.bootstrap.configRef.uid",
				"spec.infrastructureRef.resourceVersion", "spec.controlPlaneRef.uid"},
			text: regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), by: "<uid>"},
		{why: "the time of day", text: regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\d{8}T\d{6}(\.\d+)?Z`),
			by:    "<time>",
			cloud: []string{"created"}, fields: []string{"metadata.labels.modifiedAt"},
			kinds: []string{"Event", "Lease"}},
		{why: "Hetzner's ids count every resource that there was, and what names it by them",
			cloud: []string{"*.id", "id", "created_from", "public_net.*.dns_ptr", "dns_ptr"},
			text:  regexp.MustCompile(`\b\d{7,}\b`), by: "<id>"},
		{why: "which server got which address depends on who came first; the ranges, which have a slash, are compared",
			text: regexp.MustCompile(`\b127\.\d+\.\d+\.\d+\b(/32)?([^/0-9.]|$)`), by: "<address>$2",
			cloud: []string{"private_net.*.mac_address"}, fields: []string{"spec.podCIDR", "spec.podCIDRs",
				"spec.ports.*.nodePort"}},
		{why: "of a lab's range, too", text: regexp.MustCompile(`2001:db8:[0-9a-f:]+[0-9a-f]`), by: "<address>"},
		{why: "a lab takes the first range of addresses that is free on the machine; how it is divided is compared",
			text: regexp.MustCompile(`\b127\.\d+\.(\d+\.\d+/\d+)`), by: "127.<lab>.$1"},
		{why: "a counter of bytes", cloud: []string{"ingoing_traffic", "outgoing_traffic"}},
		{why: "keys and certificates are made anew for each cluster; that they stay the same within one is a verdict of " +
			"its own (SameIdentity)",
			text:  regexp.MustCompile(`-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----\n?|LS0tLS1CRUdJTi[A-Za-z0-9+/=]+`),
			by:    "<certificate>",
			cloud: []string{"fingerprint", "public_key"}},
		{why: "the identity of the state folder, which each has made up: whose upload made the image, and who holds " +
			"the reservation",
			cloud: []string{"labels.slipway-run", "image.labels.slipway-run", "labels.slipway-reserved-by"}},
		{why: "what controllers make of the objects that are compared, with names of their own, while those are " +
			"being carried out",
			kinds: []string{"Pod", "ReplicaSet", "ControllerRevision", "Endpoints", "EndpointSlice", "CertificateSigningRequest",
				"CertificateRequest",
				"ComponentStatus", "CSINode", "PriorityLevelConfiguration", "FlowSchema", "StorageVersion"}},
		{why: "a counter of how often something was written, and a Helm release's number: a release that died on its way " +
			"is rolled back or " +
			"removed and made again, which its annotations tell; that the last one is deployed, and no other " +
			"pending, is compared",
			fields: []string{"metadata.annotations.deployment.kubernetes.io/revision",
				"metadata.annotations.deprecated.daemonset.template.generation",
				"metadata.labels.version", "metadata.annotations.slipway-recovered", "metadata.annotations.slipway-owner"},
			text: regexp.MustCompile(`(sh\.helm\.release\.v1\..*)\.v\d+$`), by: "$1.v<n>"},
		{why: "Kubernetes makes them of a Node's conditions, which are compared, some of them after a while",
			taints: regexp.MustCompile(`^node\.kubernetes\.io/`)},
		{why: "CAPH writes the status of a template when it is made or changed and when CAPH starts: one that was moved, " +
			"without its status, has none until then",
			states: []string{"HCloudMachineTemplate"}},
		{why: "Cluster API's health check sets them once it has looked, after a move some time later",
			states: []string{"MachineHealthCheck"}, fields: []string{"conditions.HealthCheckSucceeded"}},
		{why: "Cluster API leaves out Machines that are less than ten seconds old, and CACPPT sets no condition " +
			"UpToDate, so that this is True or Unknown by the moment of Cluster API's last look",
			fields: []string{"conditions.ControlPlaneMachinesUpToDate"}},
		{why: "when the API server first saw an old token", fields: []string{"data.since"}},
		{why: "a run's own records, and its lock; how far each step is, is compared",
			files: []string{"runs/*", "runs/*/*", "journal.json", "journal.json.tmp", "journal.lock", "events.jsonl",
				"backups/*", "journal.destroyed-*"}},
	}
}

// skippedKind says whether a kind is not compared.
func skippedKind(kind string) bool {
	return slices.ContainsFunc(allowances(), func(a allowance) bool { return slices.Contains(a.kinds, kind) })
}
