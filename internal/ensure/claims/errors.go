package claims

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// OtherProjectError says that the token is of another Hetzner project than the one that the state folder's cluster is
// in.
type OtherProjectError struct {
	Cluster     string
	Reservation int64  // ID of the placement group that reserves the cluster's name
	Alive       string // what of the cluster still answers, or exists
}

// Error implements error.
func (e *OtherProjectError) Error() string {
	return fmt.Sprintf("placement group %d, which reserves %s for this state folder, is not in the token's project, nor "+
		"is anything else of the cluster, but %s is there: the token is of another project; where all of it was deleted by "+
		"hand, destroy forgets it",
		e.Reservation, e.Cluster, e.Alive)
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
		fmt.Fprintf(&s, "cluster %s belongs to another state folder: %s reserved the name in this project%s", e.Cluster, r.By,
			since(r))
	} else {
		fmt.Fprintf(&s, "a cluster %s exists in this project, and was not made from this state folder", e.Cluster)
	}
	s.WriteString("; this one's management cluster, if it has one, does not hold it")
	if len(e.Traces) > 0 {
		fmt.Fprintf(&s, "; of it there are %s", strings.Join(e.Traces, ", "))
	}
	s.WriteString(". Nothing was made, because a second management cluster would fight with the first over one network " +
		"and load balancer. " +
		howToGoOn)
	return s.String()
}

// TakenOverError says that another state folder has taken the cluster's name over from this one.
type TakenOverError struct {
	Cluster string
	Claim   *hetzner.Reservation
}

// Error implements error.
func (e *TakenOverError) Error() string {
	return fmt.Sprintf("cluster %s is another state folder's now: %s took the name over from this one%s. Nothing is "+
		"changed from here, because two state folders would work on one cluster without knowing of each other. Work with "+
		"that folder (--state-dir); where it is lost, take the cluster over into a new one: another --state-dir, with "+
		"MANAGEMENT_KUBECONFIG naming the kubeconfig of the cluster that manages it, which after a pivot is its own",
		e.Cluster, e.Claim.By,
		since(e.Claim))
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
type RecoveringError struct{ Claim *hetzner.Reservation }

// Error implements error.
func (e *RecoveringError) Error() string {
	return fmt.Sprintf("the cluster is being recovered from another state folder: %s began that%s. Nothing was made, "+
		"because two that restore one cluster would make two of one name and one set of keys, two that readopt it two "+
		"managers, and two that recover its quorum two etcds. Let that come to its end, or resume it there; where that "+
		"folder and the management cluster that it made, if it made one, are lost, delete the "+
		"placement group %s, and run this again", e.Claim.By, since(e.Claim), e.Claim.Name())
}
