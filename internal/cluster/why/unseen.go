package why

import (
	"regexp"
	"strings"
)

var webhook = regexp.MustCompile(`fail(?:ed|ure) (?:to call|calling) webhook "([^"]+)"`)

// expiredClient begins what is said of an expired client certificate.
const expiredClient = "it does not accept the client certificate"

// withoutCorrelation leaves out of a text the number that each answer of Hetzner's has of its own.
func withoutCorrelation(text string) string { return correlation.ReplaceAllString(text, "($1)") }

// ShortError says why there was no answer, in plain language where the error is a known one.
func ShortError(err string) string {
	line := withoutCorrelation(strings.Join(strings.Fields(err), " "))
	switch found := webhook.FindStringSubmatch(line); {
	case found != nil:
		return "webhook " + found[1] + " does not answer yet"
	case strings.Contains(line, expiredClient):
		return line[strings.Index(line, expiredClient):]
	case strings.Contains(line, "certificate has expired"):
		return "its certificate has expired"
	case strings.HasSuffix(line, "Unauthorized"):
		return "it does not accept our certificate, which may have expired: the target kubeconfig (access after a pivot) fetches a new one"
	case strings.Contains(line, "connect: connection refused"):
		return "connection refused" + addressIn(line)
	case strings.Contains(line, "context deadline exceeded"), strings.Contains(line, "i/o timeout"),
		strings.Contains(line, "Client.Timeout"), strings.Contains(line, "handshake timeout"),
		strings.HasSuffix(line, "did not answer in time"):
		return "no answer in time"
	}
	return line
}

// addressIn names the address in an error of dialling: " by 127.0.0.1:6443".
func addressIn(line string) string {
	_, rest, found := strings.Cut(line, "dial tcp ")
	if !found {
		return ""
	}
	address, _, _ := strings.Cut(rest, ": ")
	return " by " + address
}
