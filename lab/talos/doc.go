// Package talos runs a simulated Hetzner server with Talos Linux, as far as Cluster API, Slipway and a cluster's users
// observe it from outside.
//
// A server boots from its user data, the machine configuration that the bootstrap provider made. It serves the machine
// API on port 50000 with mutual TLS from the configuration's own authority. On a control plane server, Bootstrap starts
// a real etcd member and then a real kube-apiserver, kube-controller-manager and kube-scheduler with the cluster's own
// certificates; the other control plane servers of the cluster find that member through discovery, join it as learners
// and are promoted. Every server runs a kubelet of the lab.
//
// ApplyConfiguration changes the authorities of a configuration (machine.ca, machine.acceptedCAs, cluster.ca and
// cluster.acceptedCAs) and nothing else: what follows them on a real server without a reboot does so here, and the
// server keeps the configuration on its disk. COSI's state has the machine configuration alone, for os:admin to read.
//
// Real are etcd, its membership, its snapshots and their restoration, the Kubernetes programs, the certificates, the
// authorization of the machine API and its fan-out to other nodes. Simulated are the operating system, the container
// runtime, and every setting that is not visible from outside of the server.
//
// system.go has the sequence of a server's boot; each service that it starts has its own file.
//
// Where this differs from a real server: etcd, kube-apiserver and KubePrism bind the one address that the configuration
// chooses, for servers share 127.0.0.1; a talosconfig for Pods names the server's address instead of the Service
// "talos"; the audit policy and log, cluster.etcd.extraArgs, inline and extra manifests, and everything that configures
// disks, links and the kernel are not taken from the configuration. The status notes what a user could miss.
package talos
