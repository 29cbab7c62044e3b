package operations

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/config"
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

// Forecast is what applying a fleet would do: `fleet plan --output json`.
type Forecast struct {
	Kind     string              `json:"kind"` // "fleetPlan", to tell it from other output
	Fleet    string              `json:"fleet"`
	Clusters []forecast.Forecast `json:"clusters"`
	Changes  bool                `json:"changes"`
	// Monthly is what all that would be created costs a month, VAT included.
	Monthly  float64 `json:"monthly"`
	Currency string  `json:"currency,omitempty"`
	Unpriced bool    `json:"unpriced,omitempty"` // the price of a part is not known
	Host     string  `json:"-"`                  // of the management cluster; empty: a rehearsal has none yet
}

// Plan asks what applying clusters of a fleet, or all, would do. It changes nothing.
func Plan(ctx context.Context, q Request, names []string) (*Forecast, error) {
	f, clusters, err := checked(ctx, q, names)
	if err != nil {
		return nil, err
	}
	session.SilenceLibraries()
	if err := f.open(ctx, true); err != nil {
		return nil, err
	}
	if err := f.enterLab(ctx, clusters); err != nil {
		return nil, err
	}
	return f.forecastAll(ctx, clusters)
}

// forecastAll asks what a run would do with each cluster.
func (f *opened) forecastAll(ctx context.Context, clusters []cluster) (*Forecast, error) {
	p := &Forecast{Kind: "fleetPlan", Fleet: f.Name, Clusters: make([]forecast.Forecast, len(clusters))}
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(plansAtOnce)
	for i, c := range clusters {
		asking.Go(func() (err error) {
			if p.Clusters[i], err = f.forecastOne(ctx, c); err != nil {
				return fmt.Errorf("plan cluster %s: %w", c.Name, err)
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	if f.management != nil {
		p.Host = f.management.Host()
	}
	for i := range p.Clusters {
		one := &p.Clusters[i]
		one.WithoutSecrets(f.caller.Hide)
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

// forecastOne asks what a run would do with one cluster. The state that the cluster has is read into a folder that is
// removed afterwards.
func (f *opened) forecastOne(ctx context.Context, c cluster) (of forecast.Forecast, err error) {
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
	token, err := f.readToken(ctx, c.Token)
	if err != nil {
		return of, err
	}
	asked := session.Request{Targets: []string{session.TargetAll}, Options: f.asked}
	at := session.Inspection{Folder: state, Cluster: session.Cluster{Caller: f.caller, Request: asked, Cfg: cfg}}
	tools := at.CommonTools(state, io.Discard)
	endpoint := f.caller.Environment[settings.EndpointVariable]
	if f.lab != nil {
		endpoint, tools = f.labInfo.HetznerEndpoint, f.lab.Client.Equip(tools, cfg.KubernetesVersion)
	}
	tools.Token = token
	tools.Hetzner = session.HetznerClient(endpoint, token, nil, f.caller.InspectionGovernor())
	tools.Management = kind.NewProvider(cfg.Config, tools.Files, false, io.Discard, nil)
	at.Tools = tools
	return of, at.Predict(ctx, &of)
}

// pull brings the state that a cluster has into a folder.
func (f *opened) pull(ctx context.Context, cfg settings.Configuration, state statedir.Dir) error {
	identity, err := f.storedIdentity(ctx)
	if err != nil || identity == "" { // without a key there is no state yet
		return err
	}
	access := remotestate.Access{Config: cfg.Config, WorkDir: f.caller.WorkDir, Hide: f.caller.Hide,
		Environment: map[string]string{settings.StateIdentityVariable: identity, "HOME": f.caller.Environment["HOME"]}}
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
