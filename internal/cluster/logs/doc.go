// Package logs reads and follows the logs of the controllers, in the management cluster and in the cluster itself.
package logs
