package drill

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// The same seed has the same go wrong, and every fault is one that the lab can have.
func TestFaultsOfADrill(t *testing.T) {
	for _, words := range possibleFaults() {
		if _, err := lab.ParseFault(strings.Fields(words), ""); err != nil {
			t.Errorf("%s: %v", words, err)
		}
	}
	chosen := func(seed uint64) string {
		t.Helper()
		f := labtest.NewFakeLab(t)
		state := statedir.Dir(filepath.Dir(f.Dir))
		d := &run{state: state, report: Report{Seed: seed}, cluster: session.Cluster{
			Caller: &session.Caller{Environment: map[string]string{}, Hide: &redact.Redactor{}},
			Request: session.Request{
				Options: session.Options{StateDir: string(state), Lab: true, LabLatency: "fast", LabAPI: lab.NewestAPI}},
			Cfg: settings.Configuration{Config: config.Defaults()}}}
		if err := d.addFaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.countFaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.Faults) != 0 {
			t.Errorf("%d faults are left in force", len(f.Faults))
		}
		var words []string
		for _, fault := range d.report.Faults {
			words = append(words, fault.Fault)
		}
		return strings.Join(words, "; ")
	}
	one := chosen(1)
	if strings.Count(one, ";") != faultsAtOnce-1 || one != chosen(1) {
		t.Errorf("seed 1 chooses %q, and then %q", one, chosen(1))
	}
	others := map[string]bool{}
	for seed := range uint64(5) {
		others[chosen(seed+1)] = true
	}
	if len(others) < 2 {
		t.Error("five seeds choose the same")
	}
	if none := chosen(0); none != "" {
		t.Errorf("without a seed %s", none)
	}
}

func TestWhatADrillFindsOut(t *testing.T) {
	began := time.Now()
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	var writes []Write
	for i := range 20 {
		writes = append(writes, Write{Name: fmt.Sprint(i), At: at(i)})
	}
	same := Comparison{What: "the same cluster", Same: true}
	for name, c := range map[string]struct {
		surviving []Write
		more      []Comparison
		rpo       time.Duration
		passed    bool
	}{
		"as it should be":            {writes[:10], nil, 12 * time.Second, true},
		"a hole":                     {append(writes[:5:5], writes[6:10]...), nil, 12 * time.Second, false},
		"more than the backup holds": {writes[:15], nil, 7 * time.Second, false},
		"nothing":                    {nil, nil, 21 * time.Second, true},
		"another cluster":            {writes[:10], []Comparison{{What: "the same data"}}, 12 * time.Second, false},
	} {
		r := Report{Comparisons: append([]Comparison{same}, c.more...), Bootstrap: 100 * time.Second}
		r.recover(at(21), []flow.Event{{Kind: flow.StepDone, Step: "etcd-bootstrap", Time: at(51), Elapsed: time.Second}},
			at(171))
		r.lose(at(21), writes, c.surviving)
		r.conclude()
		if r.RPO.Time != c.rpo || r.RPO.Gone != 20-len(c.surviving) || r.Passed != c.passed || r.RTO != 150*time.Second ||
			r.Ratio != 1.5 || r.Steps[0].After != 30*time.Second {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := Report{}
	if r.conclude(); r.Passed {
		t.Error("a drill that compared nothing has passed")
	}
}
