package judge

import (
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The records are put in order over all logs, and a line that is being written is left for the next look.
func TestRecords(t *testing.T) {
	state := t.TempDir()
	lab := filepath.Join(state, "lab")
	put(t, filepath.Join(lab, "hetzner-requests.jsonl"),
		`{"time":"2026-05-04T12:00:00Z","method":"GET","path":"/v1/servers","status":200,"actor":"slipway"}
{"time":"2026-05-04T12:00:01Z","method":"POST","path":"/v1/servers","status":201,"actor":"slipway","write":true}
{"time":"2026-05-04T12:0`)
	put(t, filepath.Join(lab, "clusters", "k8s", "audit-b.jsonl"),
		`{"verb":"patch","requestURI":"/apis/cluster.x-k8s.io/v1beta1/namespaces/default/clusters/k8s","userAgent":"slipway","stageTimestamp":"2026-05-04T12:00:05Z",`+
			`"objectRef":{"resource":"clusters","apiGroup":"cluster.x-k8s.io","namespace":"default","name":"k8s"},"responseStatus":{"code":200},`+
			`"responseObject":{"kind":"Cluster","metadata":{"name":"k8s"},"spec":{"paused":true}}}`+"\n")
	put(t, filepath.Join(lab, "clusters", "k8s-mgmt", "audit.jsonl"),
		`{"verb":"create","requestURI":"/apis/cluster.x-k8s.io/v1beta1/namespaces/default/clusters?dryRun=All","userAgent":"slipway","stageTimestamp":"2026-05-04T12:00:04Z",`+
			`"objectRef":{"resource":"clusters","apiGroup":"cluster.x-k8s.io","namespace":"default"},"responseStatus":{"code":201},`+
			`"responseObject":{"kind":"Cluster","metadata":{"name":"k8s"},"spec":{}}}`+"\n")
	put(t, filepath.Join(state, "journal.json"), `{"steps":{"apply":{"state":"started"}}}`)
	w, err := Records(Place{State: state, Cluster: "k8s"})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Requests) != 1 || w.Requests[0].Status != 201 {
		t.Errorf("requests are %+v", w.Requests)
	}
	if len(w.Writes) != 2 || w.Writes[0].Side != Management || !w.Writes[0].DryRun || w.Writes[0].Name != "k8s" ||
		*w.Writes[0].Paused {
		t.Fatalf("writes are %+v", w.Writes)
	}
	if last := w.Writes[1]; last.Side != Workload || last.DryRun || last.Paused == nil || !*last.Paused {
		t.Errorf("the last write is %+v", last)
	}
	if w.Journal["apply"] != "started" || len(w.Files) != 1 {
		t.Errorf("journal %v, files %v", w.Journal, w.Files)
	}
}
