package render

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// The error about a brace that is not closed has its line, in a file of several documents, too.
func TestFillUnclosed(t *testing.T) {
	s := Source{Name: "manifests/cluster.yaml", Data: []byte("# ${A:=x}\na: ${A:=x}\n---\nb: $${A} $${B\nc: |\n  d: ${A\n")}
	docs, err := kube.Documents(s.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{s.Data, docs[1]} {
		_, err := s.Fill(text, Variables{"A": "1"})
		if err == nil || !strings.HasPrefix(err.Error(), "manifests/cluster.yaml:6: close the brace") {
			t.Errorf("it says %v", err)
		}
	}
}
