//go:build !release

package lab

// carriedSource is nil: only a released command carries the lab's source.
func carriedSource() []byte { return nil }
