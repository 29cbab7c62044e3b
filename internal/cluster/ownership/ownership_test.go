package ownership

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// memory is a state folder in memory.
type memory map[string][]byte

func (m memory) Read(name string) ([]byte, error) {
	if data, ok := m[name]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}
func (m memory) Write(name string, data []byte) error { m[name] = data; return nil }
func (m memory) Remove(name string) error             { delete(m, name); return nil }

func TestRecord(t *testing.T) {
	files := memory{}
	if r, err := Read(files); r != nil || err != nil {
		t.Errorf("of an empty folder: %+v, %v", r, err)
	}
	if err := Update(files, func(r *Record) { r.Reservation = 1 }); err != nil || len(files) > 0 {
		t.Errorf("a folder of no cluster was changed: %v, %v", files, err)
	}
	if err := (Record{Cluster: "k8s"}).Write(files); err != nil {
		t.Fatal(err)
	}
	if err := Update(files, func(r *Record) { r.Management = &Management{Provider: "kind", Name: "k8s-mgmt", UID: "u"} }); err != nil {
		t.Fatal(err)
	}
	r, err := Read(files)
	if err != nil || r.Format != plainFormat || r.Cluster != "k8s" || r.Management == nil || r.Management.UID != "u" {
		t.Errorf("%+v, %v", r, err)
	}
	// A namespace is what an older release would not know of: it is to refuse the folder.
	named := memory{}
	if err := (Record{Cluster: "k8s", Namespace: "team-a"}).Write(named); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(named); err != nil || r.Format != namespaceFormat || r.Namespace != "team-a" {
		t.Errorf("with a namespace: %+v, %v", r, err)
	}
	// So is a version set that older releases do not take by default.
	for set, format := range map[string]int{"": plainFormat, "guide": plainFormat, "2026-11": Format} {
		of := memory{}
		if err := (Record{Cluster: "k8s", Versions: set}).Write(of); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(of); err != nil || r.Format != format || r.Versions != set {
			t.Errorf("with the set %q: %+v, %v", set, r, err)
		}
	}
	for text, want := range map[string]string{
		"{":                             "unexpected end of JSON",
		"{}":                            "does not name a cluster",
		`{"format":99,"cluster":"k8s"}`: "newer release",
	} {
		files[File] = []byte(text)
		if _, err := Read(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Two steps of a run may change the record at the same time.
func TestUpdatesAtOnce(t *testing.T) {
	files := memory{}
	if err := (Record{Cluster: "k8s"}).Write(files); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := Update(files, func(r *Record) { r.Reservation++ }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if r, err := Read(files); err != nil || r.Reservation != 50 {
		t.Errorf("of 50 changes there are %+v, %v", r, err)
	}
}

func TestFromJournal(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	steps := map[string]flow.Record{
		"reserve": {State: flow.StateDone, Spec: raw(`{"clusterName":"k8s"}`), Output: raw(`{"id":7,"by":"x"}`)},
		"kind-create": {State: flow.StateDone,
			Output: raw(`{"provider":"kind","name":"k8s-mgmt","kubeconfig":"management.kubeconfig","uid":"u"}`)},
	}
	r, err := FromJournal(flow.Snapshot{Steps: steps})
	if err != nil || r.Cluster != "k8s" || r.Reservation != 7 || r.Management == nil ||
		*r.Management != (Management{Provider: "kind", Name: "k8s-mgmt", UID: "u"}) {
		t.Errorf("%+v, %v", r, err)
	}
	steps["clean"] = flow.Record{State: flow.StateDone}
	if r, err := FromJournal(flow.Snapshot{Steps: steps}); err != nil || r.Management != nil {
		t.Errorf("after clean: %+v, %v", r, err)
	}
	steps["apply"] = flow.Record{State: flow.StateStarted, Output: raw(`{"name":"other"}`)}
	var mixed *MixedError
	if _, err := FromJournal(flow.Snapshot{Steps: steps}); !errors.As(err, &mixed) ||
		!slices.Equal(mixed.Clusters, []string{"k8s", "other"}) {
		t.Errorf("of two clusters: %v", err)
	}
	if r, err := FromJournal(flow.Snapshot{}); r != nil || err != nil {
		t.Errorf("of an empty journal: %+v, %v", r, err)
	}
}

func TestFromKubeconfig(t *testing.T) {
	for name, tt := range map[string]struct{ kubeconfig, want string }{
		"of Cluster API":    {"apiVersion: v1\nkind: Config\ncurrent-context: my-k8s-admin@my-k8s\n", "my-k8s"},
		"of someone else":   {"apiVersion: v1\nkind: Config\ncurrent-context: prod\n", ""},
		"of two names":      {"apiVersion: v1\nkind: Config\ncurrent-context: a-admin@b\n", ""},
		"that is unfit":     {"{", ""},
		"that is not there": {"", ""},
	} {
		files := memory{}
		if tt.kubeconfig != "" {
			files["kubeconfig"] = []byte(tt.kubeconfig)
		}
		r, err := FromKubeconfig(files)
		if err != nil || (r == nil) != (tt.want == "") || r != nil && r.Cluster != tt.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
