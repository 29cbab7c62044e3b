// Package etcdview compares what the members of etcd say of each other.
package etcdview
