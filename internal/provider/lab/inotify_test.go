package lab

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/inotify"
)

func TestTooFewInotifyInstances(t *testing.T) {
	for _, c := range []struct {
		use           inotify.Use
		refused, note bool
	}{
		{use: inotify.Use{Used: 109, Limit: 128}, refused: true},
		{use: inotify.Use{Used: 69, Limit: 128}, note: true},
		{use: inotify.Use{Used: 68, Limit: 128}},
	} {
		var said []string
		err := checkInotify(c.use, func(format string, _ ...any) { said = append(said, format) })
		if (err != nil) != c.refused || (len(said) > 0) != c.note {
			t.Errorf("%+v: error %v, said %q", c.use, err, said)
		}
		if err != nil && !strings.Contains(err.Error(), "sysctl fs.inotify.max_user_instances=") {
			t.Errorf("no way out is named: %v", err)
		}
	}
}
