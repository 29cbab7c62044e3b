package effect

import (
	"regexp"
	"strings"
)

var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	address = regexp.MustCompile(`\b[0-9]{1,3}(\.[0-9]{1,3}){3}\b`)
	port    = regexp.MustCompile(`:[0-9]{2,5}\b`)
	token   = regexp.MustCompile(`[^-._/:*]+`)

	// suffix is what an API server makes up after a generateName: apimachinery's rand.String(5), in an alphabet without
	// vowels, and without digits that look like letters.
	suffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	// digest is a hash, an id or a time.
	digest = regexp.MustCompile(`^([0-9]{8,}|[0-9a-f]*([0-9][a-f]|[a-f][0-9])[0-9a-f]*)$`)
)

// shortestDigest keeps texts like "cafe2" from being taken for hashes.
const shortestDigest = 8

// Plain puts * in the place of what is different in every run: ids, random suffixes, hashes, addresses and ports.
func Plain(name string) string {
	name = uuid.ReplaceAllString(name, "*")
	name = address.ReplaceAllString(name, "*")
	name = port.ReplaceAllString(name, ":*")
	name = token.ReplaceAllStringFunc(name, func(word string) string {
		if suffix.MatchString(word) || len(word) >= shortestDigest && digest.MatchString(word) {
			return "*"
		}
		return word
	})
	return strings.Join(strings.Fields(name), "_")
}
