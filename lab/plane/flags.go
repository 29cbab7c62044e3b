package plane

import (
	"cmp"
	"strings"
)

// Ports at which the controller-manager and the scheduler serve their health.
const (
	controllerManagerPort = "10257"
	schedulerPort         = "10259"
)

// frontProxy is the name that the apiserver shows to aggregated API servers.
const frontProxy = "front-proxy-client"

// egressConfig sends every connection into the cluster (webhooks, conversions,
// aggregated APIs, kubelets) to a Unix socket.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %q
`

// auditPolicy records every write with its user and program, so that the log can prove that nothing was written. It
// omits reads, reviews, which are created but write nothing, and the constant writes of a cluster's own parts: leases
// and events. A Cluster object is recorded completely, so that the log shows when it was paused; it contains no secret.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {group: authentication.k8s.io, resources: [tokenreviews, selfsubjectreviews]}
  - {group: authorization.k8s.io}
- level: None
  userGroups: [system:nodes, system:serviceaccounts]
  resources: &noise
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: events.k8s.io, resources: [events]}
  - {group: "", resources: [events]}
- level: None
  users: [system:kube-controller-manager, system:kube-scheduler, system:apiserver]
  resources: *noise
- level: RequestResponse
  resources:
  - {group: cluster.x-k8s.io, resources: [clusters]}
- level: Metadata
`

func (p *Plane) apiArgs() []string {
	c, f := p.cfg, p.files
	args := []string{
		"--bind-address=" + c.Address, "--advertise-address=" + c.Address, "--secure-port=" + cmp.Or(c.Port, APIPort),
		// Endpoints refuse loopback addresses, so the Service "kubernetes" has none.
		"--endpoint-reconciler-type=none",
		"--etcd-servers=" + strings.Join(c.Etcd.Endpoints, ","),
		"--etcd-cafile=" + f.etcdCA, "--etcd-certfile=" + f.etcdCert, "--etcd-keyfile=" + f.etcdKey,
		"--tls-cert-file=" + f.serverCert, "--tls-private-key-file=" + f.serverKey,
		"--client-ca-file=" + f.accepted,
		"--requestheader-client-ca-file=" + f.aggregatorCA, "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + f.aggregatorCert, "--proxy-client-key-file=" + f.aggrKey,
		"--kubelet-client-certificate=" + f.kubeletCert, "--kubelet-client-key=" + f.kubeletKey,
		"--service-account-key-file=" + f.serviceAccountKey, "--service-account-signing-key-file=" + f.serviceAccountKey,
		"--service-account-issuer=" + c.Issuer,
		"--service-cluster-ip-range=" + c.ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--profiling=false",
	}
	if f.egress != "" {
		args = append(args, "--egress-selector-config-file="+f.egress)
	}
	if f.encryption != "" {
		args = append(args, "--encryption-provider-config="+f.encryption)
	}
	if f.audit != "" {
		args = append(args, "--audit-policy-file="+f.audit, "--audit-log-path="+c.AuditLog,
			"--audit-log-maxsize=64", "--audit-log-maxbackup=2") // megabytes; files beside the current one
	}
	return append(args, c.APIArgs...)
}

func (p *Plane) controllerManagerArgs() []string {
	c, f := p.cfg, p.files
	args := append(p.componentArgs(f.controllerManager, controllerManagerPort),
		"--use-service-account-credentials",
		"--service-account-private-key-file="+f.serviceAccountKey,
		"--root-ca-file="+f.ca,
		"--cluster-signing-cert-file="+f.ca, "--cluster-signing-key-file="+f.caKey,
		// The default limit of 20 requests a second is meant for large clusters, and delays a small one.
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
	if c.PodCIDR != "" {
		args = append(args, "--allocate-node-cidrs", "--cluster-cidr="+c.PodCIDR, "--service-cluster-ip-range="+c.ServiceCIDR)
	}
	return append(args, c.ControllerManagerArgs...)
}

func (p *Plane) schedulerArgs() []string {
	args := append(p.componentArgs(p.files.scheduler, schedulerPort), "--kube-api-qps=200", "--kube-api-burst=400")
	return append(args, p.cfg.SchedulerArgs...)
}

func (p *Plane) componentArgs(id component, port string) []string {
	leaderElect := "--leader-elect=false"
	if p.cfg.LeaderElect {
		leaderElect = "--leader-elect=true"
	}
	return []string{
		"--kubeconfig=" + id.kubeconfig,
		"--authentication-kubeconfig=" + id.kubeconfig, "--authorization-kubeconfig=" + id.kubeconfig,
		"--bind-address=" + p.cfg.Address, "--secure-port=" + port,
		"--tls-cert-file=" + id.cert, "--tls-private-key-file=" + id.key,
		leaderElect,
		"--profiling=false",
	}
}
