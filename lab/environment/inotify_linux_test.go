package environment

import (
	"strings"
	"testing"
)

func TestShortageOfInotify(t *testing.T) {
	if n := spareInotify(1); n > 1 {
		t.Errorf("of at most 1 there are %d", n)
	}
	if said := tooFew(48, 48); said != "" {
		t.Errorf("with enough: %q", said)
	}
	if said := tooFew(3, 8); !strings.Contains(said, ") 3 are left, and this lab needs 8 more") {
		t.Errorf("with too few: %q", said)
	}
}
