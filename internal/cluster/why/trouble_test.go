package why

import "testing"

// TestTroubleIsRecognized holds what a report takes for trouble to what the sentences are made from.
func TestTroubleIsRecognized(t *testing.T) {
	for _, r := range recorded() {
		a := Explain(load(t, r.file))
		for _, f := range a.Findings {
			switch word := TroubleIn(f.What); {
			case f.weight > weightNormal && word == "":
				t.Errorf("%s: nothing in %q tells that it is trouble", r.file, f.What)
			case f.weight == weightNormal && word != "":
				t.Errorf("%s: %q is taken for trouble, for %q", r.file, f.What, word)
			}
		}
	}
	for text, want := range map[string]string{
		"waiting for the management cluster: it does not answer (no answer in time)":                              "does not answer",
		"waiting for etcd: 0 of 3 servers run; a: its server runs, Talos does not answer yet (no answer in time)": "",
		"waiting for the providers to serve: webhook x does not answer yet":                                       "",
		"waiting for cilium: Deployment hubble-ui has 0 of 1 available (Pod x: ImagePullBackOff)":                 "imagepullbackoff",
	} {
		if got := TroubleIn(text); got != want {
			t.Errorf("in %q it finds %q, want %q", text, got, want)
		}
	}
}
