// Package config is the configuration of a cluster: its variables with defaults, their validation, and the versions
// that go together. It is plain data.
package config
