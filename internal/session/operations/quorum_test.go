package operations

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
)

// What could not be compared is named before it is wiped.
func TestTheQuestionNamesWhoCouldNotBeCompared(t *testing.T) {
	s := etcdview.Survey{Servers: []string{"a", "b", "c"}, Survivor: "a", Wipe: []string{"b"}, Target: "b"}
	const said = "b also holds etcd data"
	if lines := strings.Join(recoveryLines(s, quorum.Snapshot{}), "\n"); strings.Contains(lines, said) {
		t.Errorf("of a server that was compared: %s", lines)
	}
	s.Silent = []string{"b"}
	if lines := strings.Join(recoveryLines(s, quorum.Snapshot{}), "\n"); !strings.Contains(lines, said) {
		t.Errorf("it does not say %q: %s", said, lines)
	}
}

// The last server is reset before it gets its own data back, and nothing else is said of it.
func TestTheForecastOfALastServer(t *testing.T) {
	f := QuorumForecast{Cluster: "k8s"}
	f.add(etcdview.Survey{Servers: []string{"a"}, Survivor: "a", Wipe: []string{"a"}, Target: "a"})
	text := f.String()
	if !strings.Contains(text, "- reset: a, as no other server is left") ||
		strings.Contains(text, "only when the new etcd") {
		t.Error(text)
	}
}
