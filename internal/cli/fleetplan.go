package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// plansAtOnce bounds the clusters that are asked at once.
const plansAtOnce = 4

// fleetPlan is what applying a fleet would do: `fleet plan --output json`.
type fleetPlan struct {
	Kind     string              `json:"kind"` // "fleetPlan", to tell it from other output
	Fleet    string              `json:"fleet"`
	Clusters []forecast.Forecast `json:"clusters"`
	Changes  bool                `json:"changes"`
	// Monthly is what all that would be created costs a month, VAT included.
	Monthly  float64 `json:"monthly"`
	Currency string  `json:"currency,omitempty"`
	Unpriced bool    `json:"unpriced,omitempty"` // the price of a part is not known
}

func runFleetPlan(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	f, clusters, err := checkedFleet(ctx, c, a, o)
	if err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	if err := f.open(ctx, true, sayLines(c)); err != nil {
		return err
	}
	if err := f.enterLab(ctx, clusters); err != nil {
		return err
	}
	p, err := f.plan(ctx, clusters)
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, p)
	}
	f.tellWhere()
	p.print(c)
	return nil
}

// tellWhere names the management cluster.
func (f *openedFleet) tellWhere() {
	if f.management != nil {
		tell(f.console, "the management cluster is at %s", f.management.Host())
	}
}

// plan asks what a run would do with each cluster.
func (f *openedFleet) plan(ctx context.Context, clusters []fleetCluster) (*fleetPlan, error) {
	p := &fleetPlan{Kind: "fleetPlan", Fleet: f.Name, Clusters: make([]forecast.Forecast, len(clusters))}
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(plansAtOnce)
	for i, c := range clusters {
		asking.Go(func() (err error) {
			if p.Clusters[i], err = f.forecast(ctx, c); err != nil {
				return fmt.Errorf("plan cluster %s: %w", c.Name, err)
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	for i := range p.Clusters {
		one := &p.Clusters[i]
		one.WithoutSecrets(f.console.hide)
		p.Changes = p.Changes || one.Changes()
		if one.Bill == nil {
			p.Unpriced = true
			continue
		}
		p.Monthly += one.Bill.Monthly.Monthly
		p.Unpriced = p.Unpriced || one.Bill.Monthly.Unknown
		if one.Bill.Monthly.Currency != "" {
			p.Currency = one.Bill.Monthly.Currency
		}
	}
	return p, nil
}

// forecast asks what a run would do with one cluster. The state that the cluster has is read into a folder that is
// removed afterwards.
func (f *openedFleet) forecast(ctx context.Context, c fleetCluster) (of forecast.Forecast, err error) {
	of = forecast.Forecast{Kind: "plan", Cluster: c.Name, Environment: statedir.EnvironmentHetzner,
		State: c.cfg.State + " of the management cluster"}
	scratch, err := os.MkdirTemp("", "slipway-plan-")
	if err != nil {
		return of, fmt.Errorf("create a folder for the cluster's state: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	const management = "management"
	if err := platform.FilesIn(scratch).Write(management, f.kubeconfig); err != nil {
		return of, err
	}
	state, cfg := statedir.Dir(filepath.Join(scratch, "state")), c.cfg
	cfg.ManagementKubeconfig = filepath.Join(scratch, management)
	cfg.StateKubeconfig = cfg.ManagementKubeconfig
	if err := f.pull(ctx, cfg, state); err != nil {
		return of, err
	}
	token, err := f.token(ctx, c.Token)
	if err != nil {
		return of, err
	}
	at := session.Inspection{Folder: state,
		Cluster: f.console.cluster(arguments{Targets: []string{targetAll}, Options: f.options}, cfg)}
	tools := at.CommonTools(state, io.Discard)
	endpoint := f.console.environment[settings.EndpointVariable]
	if f.lab != nil {
		endpoint, tools = f.labInfo.HetznerEndpoint, f.lab.Client.Equip(tools)
	}
	tools.Token = token
	tools.Hetzner = session.HetznerClient(endpoint, token, nil, f.console.caller().InspectionGovernor())
	tools.Management = kind.NewProvider(cfg.Config, tools.Files, false, io.Discard, nil)
	at.Tools = tools
	return of, at.Predict(ctx, &of)
}

// pull brings the state that a cluster has into a folder.
func (f *openedFleet) pull(ctx context.Context, cfg settings.Configuration, state statedir.Dir) error {
	identity, err := f.storedIdentity(ctx)
	if err != nil || identity == "" { // without a key there is no state yet
		return err
	}
	access := remotestate.Access{Config: cfg.Config, WorkDir: f.console.workDir, Hide: f.console.hide,
		Environment: map[string]string{settings.StateIdentityVariable: identity, "HOME": f.console.environment["HOME"]}}
	place, err := access.Place(statedir.EnvironmentHetzner, string(state), "fleet plan")
	if err != nil {
		return err
	}
	_, _, exists, err := place.Document(ctx)
	if err == nil && !exists { // where earlier releases had it, until the cluster is applied again
		access.Config.State = config.StateSecretsScheme + f.Namespace
		if place, err = access.Place(statedir.EnvironmentHetzner, string(state), "fleet plan"); err != nil {
			return err
		}
		_, _, exists, err = place.Document(ctx)
	}
	if err != nil || !exists {
		return err
	}
	if _, _, err := place.Pull(ctx); err != nil {
		return err
	}
	files := state.Files()
	if _, err := files.Read(platform.ManagementKubeconfig); err != nil {
		return nil // the cluster manages itself
	}
	return files.Write(platform.ManagementKubeconfig, f.kubeconfig) // that of the Jobs opens it inside the cluster only
}

// print writes the plan as a table, and what is to be read before one agrees.
func (p *fleetPlan) print(c *console) {
	var rows [][]string
	for i := range p.Clusters {
		one := &p.Clusters[i]
		rows = append(rows, []string{one.Cluster, one.Summary(), priceOf(one), text.Elapsed(one.Expected.Round(time.Second))})
	}
	text.Table(c.stdout, c.width(), []string{"CLUSTER", "WHAT APPLY DOES", "A MONTH, NEW", "TAKES ABOUT"}, rows...)
	for i := range p.Clusters {
		one := &p.Clusters[i]
		for _, consequence := range one.Consequences {
			mark := " "
			if consequence.Destructive() {
				mark = "!"
			}
			fmt.Fprintf(c.stdout, "%s %s: %s\n", mark, one.Cluster, text.Printable(consequence.Text))
		}
		if one.Unpriced != "" {
			fmt.Fprintf(c.stdout, "  %s: no prices: %s\n", one.Cluster, text.Printable(one.Unpriced))
		}
	}
	more := ""
	if p.Unpriced {
		more = ", and what has no price above"
	}
	fmt.Fprintf(c.stdout, "\nwhat is created costs %.2f %s a month, VAT included%s\n", p.Monthly, p.Currency, more)
}

func priceOf(f *forecast.Forecast) string {
	switch {
	case f.Bill == nil:
		return "not known"
	case f.Bill.Monthly.Unknown && f.Bill.Monthly.Monthly > 0:
		return fmt.Sprintf("%.2f %s and more", f.Bill.Monthly.Monthly, f.Bill.Monthly.Currency)
	}
	return f.Bill.Monthly.String()
}
