// Package inotify counts the inotify instances that Linux allows a user.
package inotify

// Use is how many inotify instances a user has, of how many.
type Use struct{ Used, Limit int }
