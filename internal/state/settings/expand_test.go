package settings

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func expandText(t *testing.T, text string) (*yaml.Node, error) {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return Expand(document.Content[0])
}

// An expanded tree decodes to what YAML itself decodes the text to, and a mapping's own keys count.
func TestExpand(t *testing.T) {
	for _, text := range []string{
		"a: &x {b: 1, c: 2}\nd: *x\n",
		"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n",
		"a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne: {<<: [*x, *y], f: 4}\n",
		"a: &x [1, 2]\nb: [*x, *x]\n",
		"\"<<\": text\n",
	} {
		n, err := expandText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got, want map[string]any
		if err := n.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		a, _ := yaml.Marshal(got)
		b, _ := yaml.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s is expanded to\n%s\nYAML reads\n%s", text, a, b)
		}
	}
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		last := string(rune('0' + i))
		next := string(rune('1' + i))
		laughs += "a" + next + ": &a" + next + " [" + strings.TrimSuffix(strings.Repeat("*a"+last+", ", 10), ", ") + "]\n"
	}
	for text, says := range map[string]string{laughs: "too much", "a: {<<: 1}\n": "line 1: <<"} {
		if _, err := expandText(t, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
