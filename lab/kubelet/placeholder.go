package kubelet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placeholder matches {word} and {word:argument}. Other text in braces, such as JSON, is not changed.
var placeholder = regexp.MustCompile(`\{(kubeconfig|namespace|pod|node|tag|ca|proxy|port|reach|dir)(?::([^{}]*))?\}`)

// checkPlaceholders returns an error for a malformed placeholder of a text.
func checkPlaceholders(text string) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		hasArgument := strings.Contains(m[0], ":")
		switch word, argument := m[1], m[2]; word {
		case "port", "reach":
			if n, err := strconv.ParseUint(argument, 10, 16); err != nil || n == 0 {
				return fmt.Errorf("placeholder %s in %q: write {%s:N} with a port of the container, 1 to 65535", m[0], text,
					word)
			}
		case "dir":
			if !strings.HasPrefix(argument, "/") {
				return fmt.Errorf("placeholder %s in %q: write {dir:/path} with an absolute path in the container", m[0], text)
			}
		default:
			if hasArgument {
				return fmt.Errorf("placeholder %s in %q: {%s} takes no argument", m[0], text, word)
			}
		}
	}
	return nil
}

// portsOf returns the container ports that the texts ask for, each once, in their order.
func portsOf(texts []string) []int32 { return asked(texts, "port", "reach") }

// reachedPorts returns those that processes of other Pods are to reach.
func reachedPorts(texts []string) []int32 { return asked(texts, "reach") }

// asked returns the container ports in placeholders of these words.
func asked(texts []string, words ...string) []int32 {
	var ports []int32
	seen := map[int32]bool{}
	for _, text := range texts {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(words, m[1]) {
				continue
			}
			n, err := strconv.ParseUint(m[2], 10, 16)
			if port := int32(n); err == nil && !seen[port] {
				seen[port] = true
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// fill replaces every placeholder of a text by what value returns for it.
func fill(text string, value func(word, argument string) (string, error)) (string, error) {
	var failed error
	filled := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		v, err := value(m[1], m[2])
		if err != nil && failed == nil {
			failed = fmt.Errorf("placeholder %s: %w", found, err)
		}
		return v
	})
	return filled, failed
}
