package cloud

import "testing"

func TestSelectors(t *testing.T) {
	labels := map[string]string{"env": "prod", "tier": "", "example.com/team": "core"}
	for text, want := range map[string]bool{
		"":                               true,
		"env":                            true,
		"!env":                           false,
		"nope":                           false,
		"!nope":                          true,
		"env=prod":                       true,
		"env==prod":                      true,
		"env=dev":                        false,
		"env!=dev":                       true,
		"env!=prod":                      false,
		"nope!=x":                        true,
		"tier=":                          true,
		"tier==":                         true,
		"env in (dev,prod)":              true,
		"env in (dev)":                   false,
		"env notin (dev, test)":          true,
		"env notin (prod)":               false,
		"nope notin (a)":                 true,
		"nope in (a)":                    false,
		"env=prod,tier":                  true,
		"env=prod,!tier":                 false,
		"env in (dev,prod),tier,nope!=a": true,
		"example.com/team=core":          true,
		" env = prod , !nope ":           true,
	} {
		parsed, err := parseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := parsed.matches(labels); got != want {
			t.Errorf("%q matches: %v", text, got)
		}
	}
	for _, text := range []string{",", "a b", "=x", "a=b c", "in (a)x", "a in (b", "!", "-a", "a=-b", "a,,b"} {
		if _, err := parseSelector(text); err == nil {
			t.Errorf("%q is taken for a selector", text)
		}
	}
}
