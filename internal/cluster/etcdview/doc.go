// Package etcdview reads what the servers of a control plane say of etcd: which of them has data, and the latest, and
// what the members say of each other.
package etcdview
