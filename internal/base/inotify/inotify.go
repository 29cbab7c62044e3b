// Package inotify counts the inotify instances in use, and the limit of Linux for a user.
package inotify

// Use is how many inotify instances a user has, of how many.
type Use struct{ Used, Limit int }
