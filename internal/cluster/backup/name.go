package backup

import (
	"regexp"
	"time"
)

// Suffix ends the name of every backup.
const Suffix = ".slipway"

// nameTime is UTC, and sorts as text.
const nameTime = "20060102T150405Z"

var nameForm = regexp.MustCompile(`^(.+)-([0-9]{8}T[0-9]{6}Z)\.slipway$`)

// Name is what the backup of a cluster at a time is called: "k8s-20260102T150405Z.slipway".
func Name(cluster string, at time.Time) string {
	return cluster + "-" + at.UTC().Format(nameTime) + Suffix
}

// ParseName takes a Name apart; ok is false for every other.
func ParseName(name string) (cluster string, at time.Time, ok bool) {
	found := nameForm.FindStringSubmatch(name)
	if found == nil {
		return "", time.Time{}, false
	}
	at, err := time.Parse(nameTime, found[2])
	return found[1], at, err == nil
}
