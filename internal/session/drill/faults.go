package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// faultsAtOnce is how many faults a drill has in force during its restore.
const faultsAtOnce = 3

// possibleFaults are the faults that a drill chooses among, as lab fault add takes
// them. None of them needs what only a restore makes, and after each of them a
// restore must come to its end, if it is run again.
func possibleFaults() []string {
	return []string{
		"error method=GET probability=0.2 times=10 status=503",
		"error method=POST path=/servers times=2 status=500",
		"rate-limit times=2 delay=2s",
		"lost-reply method=POST path=/servers times=1",
		"timeout times=1 delay=5s skip=5",
		"reset times=3 skip=3 probability=0.3",
		"stale-lists delay=2s for=20s",
		"out-of-stock times=2 skip=1",
		"action-error command=create_server times=1 skip=1",
		"slow-boot server=* delay=10s times=1",
	}
}

// addFaults has some of the faults go wrong from now on.
func (d *run) addFaults(ctx context.Context) error {
	if d.report.Seed == 0 {
		return nil
	}
	l, err := d.cluster.LabToStart(d.state)
	if err != nil {
		return err
	}
	if _, err := l.Up(ctx, func(string, ...any) {}); err != nil { // of a backup's drill it is not up yet
		return err
	}
	r := rand.New(rand.NewPCG(d.report.Seed, 1))
	all := possibleFaults()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, words := range all[:faultsAtOnce] {
		if strings.Contains(words, "probability") {
			words += fmt.Sprintf(" seed=%d", d.report.Seed)
		}
		fault, err := lab.ParseFault(strings.Fields(words), d.cluster.Caller.WorkDir)
		if err != nil {
			return err
		}
		var begun lab.Fault
		if err := l.Client.Send(ctx, http.MethodPost, "/v1/faults", fault, &begun); err != nil {
			return err
		}
		d.report.Faults = append(d.report.Faults, Fault{Fault: words, id: begun.ID})
	}
	return nil
}

// countFaults tells how often each fault has hit that is still in force, and
// ends it: the comparison is made in peace.
func (d *run) countFaults(ctx context.Context) error {
	if d.report.Seed == 0 {
		return nil
	}
	client := d.cluster.LabToInspect(d.state).Client
	var list struct{ Faults []lab.Fault }
	if err := client.Do(ctx, http.MethodGet, "/v1/faults", &list); err != nil {
		return err
	}
	for i := range d.report.Faults {
		f := &d.report.Faults[i]
		at := slices.IndexFunc(list.Faults, func(l lab.Fault) bool { return l.ID == f.id })
		if f.Spent = at < 0; f.Spent {
			continue
		}
		f.Hits = list.Faults[at].Hits
		if err := client.Do(ctx, http.MethodDelete, fmt.Sprintf("/v1/faults/%d", f.id), nil); err != nil {
			return err
		}
	}
	return nil
}
