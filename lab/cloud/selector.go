package cloud

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// selector is a parsed label selector: every requirement must hold.
type selector []requirement

// requirement is one comma separated part of a selector.
type requirement struct {
	key    string
	values []string // nil: the key must exist
	negate bool
}

var (
	labelKey = regexp.MustCompile(
		`^([a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)
	labelValue = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?)?$`)
	setForm    = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)
)

// parseSelector reads all forms of the API's "Label Selector": k, !k, k=v, k==v, k!=v, k in (a,b),
// k notin (a,b), joined by commas.
func parseSelector(text string) (selector, error) {
	var parsed selector
	for _, part := range splitOutsideParentheses(text) {
		one, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("label selector %q: %w", text, err)
		}
		parsed = append(parsed, one)
	}
	return parsed, nil
}

// splitOutsideParentheses splits at the commas that join requirements, not those of a value set.
func splitOutsideParentheses(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var parts []string
	depth, start := 0, 0
	for i, char := range text {
		switch {
		case char == '(':
			depth++
		case char == ')':
			depth--
		case char == ',' && depth == 0:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

func parseRequirement(text string) (requirement, error) {
	var parsed requirement
	if set := setForm.FindStringSubmatch(text); set != nil {
		parsed = requirement{key: set[1], negate: set[2] == "notin", values: strings.Split(set[3], ",")}
	} else if key, value, ok := strings.Cut(text, "!="); ok {
		parsed = requirement{key: key, values: []string{value}, negate: true}
	} else if key, value, ok := strings.Cut(text, "="); ok {
		parsed = requirement{key: key, values: []string{strings.TrimPrefix(value, "=")}}
	} else if key, ok := strings.CutPrefix(text, "!"); ok {
		parsed = requirement{key: key, negate: true}
	} else {
		parsed = requirement{key: text}
	}
	parsed.key = strings.TrimSpace(parsed.key)
	if !labelKey.MatchString(parsed.key) {
		return parsed, fmt.Errorf("%q is not a label key", parsed.key)
	}
	for i, value := range parsed.values {
		parsed.values[i] = strings.TrimSpace(value)
		if !labelValue.MatchString(parsed.values[i]) {
			return parsed, fmt.Errorf("%q is not a label value", parsed.values[i])
		}
	}
	return parsed, nil
}

// matches tells whether the labels meet every requirement. As in Kubernetes, a label that is
// absent meets k!=v and k notin (…).
func (s selector) matches(labels map[string]string) bool {
	for _, want := range s {
		value, met := labels[want.key]
		if met && want.values != nil {
			met = slices.Contains(want.values, value)
		}
		if met == want.negate {
			return false
		}
	}
	return true
}

// checkLabels refuses labels that the API does not take.
func checkLabels(labels map[string]string) error {
	for key, value := range labels {
		if !labelKey.MatchString(key) {
			return invalid("labels", "%q is not a label key", key)
		}
		if !labelValue.MatchString(value) {
			return invalid("labels", "%q of %q is not a label value", value, key)
		}
	}
	return nil
}
