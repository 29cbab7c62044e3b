package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Reservation is this state folder's hold on the cluster's name in the Hetzner project.
type Reservation struct {
	ID int64  `json:"id"`
	By string `json:"by"` // identity of the state folder
}

const (
	// reservedWithin is how long a reservation that another run made first may take to be found: lists lag a little.
	reservedWithin = 30 * time.Second
	reservedEvery  = 250 * time.Millisecond
)

// Reserve adds the step reserve to a graph: the name of the cluster is reserved in the Hetzner project.
func (s *Set) Reserve(g *flow.Graph) *flow.Step[Reservation] {
	step := newReserveStep(s)
	return flow.Add(g, "reserve", step.run).
		Doc("the cluster's name is this state folder's in the Hetzner project: no other makes a second cluster into the first").
		Spec(map[string]string{"clusterName": s.cfg.ClusterName}).Verify(step.verify).
		Deadline(reservedWithin + overhead).Waits(waitReserved)
}

// reserveStep runs and verifies the step reserve.
type reserveStep struct {
	cfg   config.Config
	tools platform.Tools
}

func newReserveStep(s *Set) reserveStep {
	return reserveStep{cfg: s.cfg, tools: s.tools}
}

// run makes sure that this state folder alone makes the cluster of this name in the project. Cluster API's provider
// adopts by the cluster's name whatever it finds: two management clusters that both make the cluster would fight over
// one network, one load balancer and each other's servers.
func (step reserveStep) run(ctx context.Context, say flow.Say) (Reservation, error) {
	by, err := ownership.Identity(step.tools)
	if err != nil {
		return Reservation{}, err
	}
	if err := refuseRecovering(ctx, step.cfg, step.tools, by); err != nil {
		return Reservation{}, err
	}
	out, err := claim(ctx, step.cfg, say, by, step.reserved)
	if err != nil {
		return Reservation{}, err
	}
	return out, ownership.Update(step.tools.Files, func(r *ownership.Record) { r.Reservation = out.ID })
}

// refuseRecovering refuses while another state folder restores or readopts the cluster, or recovers its quorum.
func refuseRecovering(ctx context.Context, cfg config.Config, tools platform.Tools, by string) error {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err == nil && found != nil && found.By != by {
		err = &RecoveringError{found}
	}
	return err
}

// claim tries to get a claim until it has it, or knows that it is another's.
func claim(ctx context.Context, cfg config.Config, say flow.Say, by string, try func(context.Context, flow.Say, string) (*hetzner.Reservation, error)) (out Reservation, err error) {
	err = wait.Wait{What: "the reservation of " + cfg.ClusterName, Within: reservedWithin, Every: reservedEvery, Each: reservedWithin}.Until(ctx, say, func(ctx context.Context) (string, error) {
		found, err := try(ctx, say, by)
		var foreign *hetzner.ForeignError
		switch {
		case errors.Is(err, hetzner.ErrReserved):
			return "somebody else has just made it", nil
		case errors.Is(err, hetzner.ErrToken), errors.As(err, &foreign):
			return "", wait.Final(err)
		case err != nil:
			return "", err
		}
		out = Reservation{ID: found.ID, By: found.By}
		return "", nil
	})
	return out, err
}

// reserved finds, makes or takes over the reservation.
func (step reserveStep) reserved(ctx context.Context, say flow.Say, by string) (*hetzner.Reservation, error) {
	api, cluster := step.tools.Hetzner, step.cfg.ClusterName
	claim := hetzner.ClusterClaim(cluster)
	found, err := claim.Find(ctx, api)
	if err != nil || found != nil && found.By == by {
		return found, err
	}
	traces, err := hetzner.Traces(ctx, api, cluster)
	if err != nil {
		return nil, err
	}
	if found != nil || len(traces) > 0 {
		// A state folder can be lost. The objects of Cluster API tell whose the cluster is.
		managed, err := step.managed(ctx, say)
		if err != nil {
			return nil, wait.Final(fmt.Errorf("cluster %s exists, and whether it is this state folder's cannot be found out: %w", cluster, err))
		}
		if !managed {
			return nil, wait.Final(&ReservedError{Cluster: cluster, Traces: traces, reservation: found})
		}
	}
	if found == nil {
		say("reserving the name %s in the project", cluster)
		return claim.Reserve(ctx, api, by, hostname())
	}
	say("taking the name %s over from state folder %s: the management cluster holds the cluster's objects", cluster, found.By)
	return found, found.TakeOver(ctx, api, by, hostname())
}

// hostname is this machine's, for people; empty where it has none.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}

// managed tells whether a management cluster that this state folder, or the provider of its management cluster, leads
// to holds the Cluster object. One that is silent is no answer.
func (step reserveStep) managed(ctx context.Context, say flow.Say) (bool, error) {
	source, _, err := management.Open(ctx, step.cfg, step.tools, say)
	if err != nil {
		return false, err
	}
	self, err := connect.Cluster(step.tools, platform.Kubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, c := range []*kube.Cluster{source, self} {
		if c == nil {
			continue
		}
		object, err := management.FindCluster(ctx, step.cfg, c)
		switch {
		case err != nil:
			return false, err
		case object != nil:
			return true, nil
		}
	}
	return false, nil
}

func (step reserveStep) verify(ctx context.Context, was Reservation) flow.Verdict {
	found, err := hetzner.ClusterClaim(step.cfg.ClusterName).Find(ctx, step.tools.Hetzner)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found == nil:
		return unreserved(ctx, step.cfg, step.tools, was)
	case found.By != was.By:
		return flow.Gone("state folder %s has taken the name %s over", found.By, step.cfg.ClusterName)
	}
	return flow.Holds()
}

// unreserved tells a reservation that was deleted from a token of another project, in which everything would be made a
// second time: by a management cluster that has made the cluster already, and would be given that token. Where neither
// that management cluster nor the cluster exists, and where something of the cluster is left in the project, the name
// is reserved anew.
func unreserved(ctx context.Context, cfg config.Config, tools platform.Tools, was Reservation) flow.Verdict {
	traces, err := hetzner.Traces(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	gone := flow.Gone("nothing reserves the name %s in the project any more", cfg.ClusterName)
	if len(traces) > 0 {
		return gone
	}
	switch alive, err := outlived(ctx, cfg, tools); {
	case err != nil:
		return flow.Unknown(err)
	case alive == "":
		return gone
	default:
		return flow.Unknown(&OtherProjectError{Cluster: cfg.ClusterName, Reservation: was.ID, Alive: alive})
	}
}

// OtherProjectError says that the token is of another Hetzner project than the one that the state folder's cluster is
// in.
type OtherProjectError struct {
	Cluster     string
	Reservation int64  // ID of the placement group that reserves the cluster's name
	Alive       string // what of the cluster still answers, or exists
}

// Error implements error.
func (e *OtherProjectError) Error() string {
	return fmt.Sprintf("placement group %d, which reserves %s for this state folder, is not in the token's project, nor is anything else of the cluster, "+
		"but %s is there: the token is of another project; where all of it was deleted by hand, destroy forgets it", e.Reservation, e.Cluster, e.Alive)
}

// CheckProject returns an *OtherProjectError where the token is of another project than the one in which the state
// folder has reserved the cluster's name. A question that cannot be asked is no error: what comes next asks Hetzner
// too, and says so.
func CheckProject(ctx context.Context, cfg config.Config, tools platform.Tools) error {
	tools = tools.WithDefaults()
	record, err := ownership.Read(tools.Files)
	if err != nil || record == nil || record.Reservation == 0 {
		return err
	}
	found, err := hetzner.ClusterClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err != nil || found != nil {
		return ctx.Err()
	}
	verdict := unreserved(ctx, cfg, tools, Reservation{ID: record.Reservation})
	if other := (*OtherProjectError)(nil); errors.As(verdict.Err(), &other) {
		return other
	}
	return ctx.Err()
}

// outlived names what still exists of that which this state folder opens: the management cluster, or the cluster
// itself; empty: nothing.
func outlived(ctx context.Context, cfg config.Config, tools platform.Tools) (string, error) {
	p, name := tools.Management, cfg.ManagementName()
	if _, err := tools.Files.Read(platform.ManagementKubeconfig); err == nil {
		exists, err := p.Exists(ctx, name)
		if err != nil {
			return "", fmt.Errorf("%s cannot tell whether management cluster %s exists: %w", p.Name(), name, err)
		}
		if exists {
			return "management cluster " + name, nil
		}
	}
	self, err := connect.Cluster(tools, platform.Kubeconfig)
	if err != nil {
		return "", nil // there is no kubeconfig, or one that opens nothing
	}
	asking, cancel := context.WithTimeout(ctx, management.AliveWithin)
	defer cancel()
	_, err = self.UID(asking)
	if status := (apierrors.APIStatus)(nil); err == nil || errors.As(err, &status) {
		return "cluster " + cfg.ClusterName, nil
	}
	return "", nil
}

// ReservedError says that the cluster is not this state folder's to make.
type ReservedError struct {
	Cluster     string
	Traces      []string             // what exists of it in the project
	reservation *hetzner.Reservation // nil: there is none
}

// Error implements error.
func (e *ReservedError) Error() string {
	var s strings.Builder
	if r := e.reservation; r != nil {
		fmt.Fprintf(&s, "cluster %s belongs to another state folder: %s reserved the name in this project%s", e.Cluster, r.By, since(r))
	} else {
		fmt.Fprintf(&s, "a cluster %s exists in this project, and was not made from this state folder", e.Cluster)
	}
	s.WriteString("; this one's management cluster, if it has one, does not hold it")
	if len(e.Traces) > 0 {
		fmt.Fprintf(&s, "; of it there are %s", strings.Join(e.Traces, ", "))
	}
	s.WriteString(". Nothing was made, because a second management cluster would fight with the first over one network and load balancer. " +
		"Work with the state folder that made it (--state-dir), or with the management cluster that holds it (MANAGEMENT_KUBECONFIG); " +
		"where both are lost, take it away (destroy); or choose another CLUSTER_NAME")
	return s.String()
}

// since is " on host laptop, on 2026-05-04 12:00:00 UTC (placement group 4711)".
func since(r *hetzner.Reservation) string {
	on := ""
	if r.Host != "" {
		on = " on host " + r.Host
	}
	return fmt.Sprintf("%s, on %s (placement group %d)", on, r.Since.UTC().Format("2006-01-02 15:04:05 UTC"), r.ID)
}

// RecoveringError says that another state folder restores or readopts the cluster, or recovers its quorum.
type RecoveringError struct{ claim *hetzner.Reservation }

// Error implements error.
func (e *RecoveringError) Error() string {
	return fmt.Sprintf("the cluster is being recovered from another state folder: %s began that%s. Nothing was made, because two that restore one "+
		"cluster would make two of one name and one set of keys, two that readopt it two managers, and two that recover its quorum two etcds. Let that "+
		"come to its end, or go on with it there; where that folder and the management cluster that it made, if it made one, are lost, delete the "+
		"placement group %s, and run this again", e.claim.By, since(e.claim), e.claim.Name())
}
