package text

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// blamed is "a, b: why": names, and what is wrong with them.
var blamed = regexp.MustCompile(`^((?:Pod )?[a-z0-9][-a-z0-9.]*-[-a-z0-9.]*(?:, (?:Pod )?[a-z0-9][-a-z0-9.]*)*): (.+)$`)

// Causes are the parts of a sentence, one a line. In one that is longer than a line the cause comes before the names,
// so that what is cut off is a name.
func Causes(sentence string, columns int) []string {
	parts := strings.Split(Plainly(sentence), "; ")
	for i, part := range parts {
		if found := blamed.FindStringSubmatch(part); found != nil && utf8.RuneCountInString(part) > columns {
			parts[i] = found[2] + ": " + found[1]
		}
	}
	return parts
}

// Wrappings of gRPC, in which Talos's errors are.
var (
	rpcError = regexp.MustCompile(`rpc error: code = \w+ desc = `)
	nested   = regexp.MustCompile(`connection error: desc = "((?:[^"\\]|\\.)*)"`)
	inQuotes = regexp.MustCompile(`transport: (?:Error while dialing: |authentication handshake failed: )?`)
)

// Plainly leaves out of a sentence what gRPC has wrapped around a cause.
func Plainly(sentence string) string {
	if !strings.Contains(sentence, " desc = ") {
		return sentence
	}
	sentence = rpcError.ReplaceAllString(sentence, "")
	sentence = nested.ReplaceAllStringFunc(sentence, func(quoted string) string {
		return strings.ReplaceAll(nested.FindStringSubmatch(quoted)[1], `\"`, `"`)
	})
	return inQuotes.ReplaceAllString(sentence, "")
}
