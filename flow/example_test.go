package flow_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

type site struct{ Address string }

type walls struct {
	On     string
	Storey int
}

// A house is built once. The second run finds everything standing; the third
// wants more storeys and builds on the same site.
func Example() {
	dir, err := os.MkdirTemp("", "flow-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	build := func(storeys int) {
		g := flow.New("house")
		land := flow.Add(g, flow.Task[site]{
			Name: "site",
			Run: flow.Do(func(_ context.Context, say flow.Say) (site, error) {
				say("looking for a site by the river")
				return site{Address: "7 River Lane"}, nil
			}),
			Verify: func(_ context.Context, s site) flow.Verdict {
				return flow.Holds() // really: look it up in the land register
			},
		})
		flow.Add(g, flow.Task[walls]{
			Name: "walls",
			Run: flow.With1(func(_ context.Context, say flow.Say, s site) (walls, error) {
				say("raising %d storeys at %s", storeys, s.Address)
				return walls{On: s.Address, Storey: storeys}, nil
			}, land),
			Spec:     storeys,
			Deadline: time.Minute,
			Waits:    []flow.Wait{{For: "scaffolding", Within: 20 * time.Second}, {For: "mortar", Within: 30 * time.Second}},
		})

		report, err := g.Run(context.Background(), flow.Options{
			Journal: flow.Folder(dir),
			Observe: func(e flow.Event) {
				if e.Kind == flow.StepProgress {
					fmt.Printf("  %s: %s\n", e.Step, e.Message)
				}
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, s := range report.Steps {
			fmt.Printf("%s %s (%s)\n", s.Name, s.Outcome, s.Reason)
		}
	}
	build(2)
	build(2)
	build(3)

	// Output:
	//   site: looking for a site by the river
	//   walls: raising 2 storeys at 7 River Lane
	// site ran (it has not run yet)
	// walls ran (it has not run yet)
	// site reused ()
	// walls reused ()
	//   walls: raising 3 storeys at 7 River Lane
	// site reused ()
	// walls ran (changed: spec)
}
