package text

import (
	"strings"
	"testing"
)

// TestTable holds tables to the terminal's width, with every word of every cell on the screen; where the columns do not
// fit beside each other, the head and the rows are parted alike.
func TestTable(t *testing.T) {
	head := []string{"CLUSTER", "WHAT", "ID", "NAME", "TYPE", "LOCATION", "A MONTH", "BECAUSE OF"}
	rows := [][]string{
		{"k8s", "server", "1000030", "k8s-control-plane-3b431-f7njj", "cx33", "nbg1", "6.53 EUR", "caph-cluster-k8s=owned"},
		{"k8s", "placement group", "1000001", "slipway-k8s", "-", "-", "-", "slipway-cluster=k8s; but a server of another " +
			"cluster is in it\nand a second line"},
	}
	for _, width := range []int{0, 60, 80, 100, 200} {
		var out strings.Builder
		Table(&out, width, head, rows...)
		if width > 0 {
			fits(t, out.String(), width-1)
		}
		words := strings.Fields(out.String())
		want := 0
		for _, row := range append([][]string{head}, rows...) {
			want += len(strings.Fields(strings.Join(row, " ")))
		}
		if len(words) != want {
			t.Errorf("at %d columns there are %d words of %d:\n%s", width, len(words), want, out.String())
		}
	}
	var wide, narrow strings.Builder
	Table(&wide, 0, head, rows[0])
	if want := "CLUSTER  WHAT    ID       NAME                           TYPE  LOCATION  A MONTH   BECAUSE OF\n" +
		"k8s      server  1000030  k8s-control-plane-3b431-f7njj  cx33  nbg1      6.53 EUR  caph-cluster-k8s=owned\n"; wide.String() != want {
		t.Errorf("no terminal:\n%s", wide.String())
	}
	Table(&narrow, 80, head, rows[0])
	if want := "CLUSTER  WHAT    ID       NAME                           TYPE  LOCATION\n    A MONTH   BECAUSE OF\n" +
		"k8s      server  1000030  k8s-control-plane-3b431-f7njj  cx33  nbg1\n    6.53 EUR  caph-cluster-k8s=owned\n"; narrow.String() != want {
		t.Errorf("80 columns:\n%s", narrow.String())
	}
}
