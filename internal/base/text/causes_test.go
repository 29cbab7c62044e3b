package text

import (
	"slices"
	"testing"
)

// Each cause has a line, and one that is too long for it begins with what is wrong.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		sentence string
		columns  int
		want     []string
	}{
		{"waiting for the pair: one is missing", 80, []string{"waiting for the pair: one is missing"}},
		{"waiting for etcd: 2 of 3 servers run; k8s-cp-a, k8s-cp-b: its server is off", 80,
			[]string{"waiting for etcd: 2 of 3 servers run", "k8s-cp-a, k8s-cp-b: its server is off"}},
		{"1 run; k8s-cp-a, k8s-cp-b: its server is off", 30, []string{"1 run", "its server is off: k8s-cp-a, k8s-cp-b"}},
		{"ask server k8s-cp-a: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: " +
			"dial tcp 10.0.0.3:50000: connect: connection refused\"", 80,
			[]string{"ask server k8s-cp-a: dial tcp 10.0.0.3:50000: connect: connection refused"}},
		{"rpc error: code = Unavailable desc = connection error: desc = \"transport: authentication handshake failed: tls: " +
			"failed to verify certificate: x509: certificate has expired\"", 80,
			[]string{"tls: failed to verify certificate: x509: certificate has expired"}},
	} {
		if got := Causes(c.sentence, c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.sentence, got, c.want)
		}
	}
}
