package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
)

// errTokenReadonly is the code for a read-only token until 2026; since then it is "forbidden".
const errTokenReadonly hcloud.ErrorCode = "token_readonly"

// ErrReadOnly is the error of a token that may not write.
var ErrReadOnly = errors.New("Hetzner takes the token for reading only")

// AnotherToken is what to do about a token that Hetzner does not accept, or for reading only.
const AnotherToken = "create a token with read and write permission in the project's Security settings"

// CheckWrite fails where the token may not write (ErrReadOnly, ErrToken), or where that cannot be found out. No request
// of the API only tells, so it asks for the deletion of what cannot exist, a placement group with the ID 0: a token for
// reading alone is refused every method but GET before anything is looked up ("forbidden", until 2026
// "token_readonly"), any other gets the answer that there is no such thing.
func CheckWrite(ctx context.Context, c *hcloud.Client) error {
	request, err := c.NewRequest(ctx, "DELETE", "/placement_groups/0", nil)
	if err != nil {
		return err
	}
	_, err = c.Do(request, nil)
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeForbidden, errTokenReadonly):
		return ErrReadOnly
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound, hcloud.ErrorCodeInvalidInput):
		return nil
	case err == nil:
		return fmt.Errorf("the deletion of a placement group that cannot exist was answered with success")
	}
	return explain(err)
}

// AskBudget asks with the smallest list. It is zero where the answer does not tell.
func AskBudget(ctx context.Context, c *hcloud.Client) (ratelimit.Budget, error) {
	_, response, err := c.Location.List(ctx, hcloud.LocationListOpts{})
	if err != nil {
		return ratelimit.Budget{}, explain(err)
	}
	budget, _ := ratelimit.Read(response.Header, time.Now())
	return budget, nil
}

// uploadSystem is what hcloudimages has the temporary server made from, before it boots into the rescue system.
const uploadSystem = "ubuntu-24.04"

// AskUpload reports whether a temporary server to make an image with can be had now; otherwise why not. An error is no
// answer.
func AskUpload(ctx context.Context, c *hcloud.Client, location, architecture, servers string) (why string, err error) {
	types, err := UploadServerTypes(ctx, c, location, architecture, servers)
	var none *NoUploadTypeError
	switch {
	case errors.As(err, &none):
		return none.Error(), nil
	case err != nil:
		return "", err
	}
	inStock := slices.ContainsFunc(types, func(name string) bool {
		kind, askErr := FindServerType(ctx, c, name)
		err = errors.Join(err, askErr)
		sale := kind.At(location)
		return askErr == nil && (sale.InStock || !sale.Told)
	})
	if !inStock && err == nil {
		return fmt.Sprintf("no server type to create the image with is in stock in %s: %s", location,
			strings.Join(types, ", ")), nil
	}
	if inStock {
		err = nil
	}
	system, _, imageErr := c.Image.GetForArchitecture(ctx, uploadSystem, hetznerArchitecture(architecture))
	switch {
	case imageErr != nil:
		return "", fmt.Errorf("look up image %s: %w", uploadSystem, explain(imageErr))
	case system == nil:
		return fmt.Sprintf("Hetzner has no image %s for %s, which the temporary server starts from", uploadSystem,
			architecture), err
	}
	return "", err
}

// Range is a network of the project.
type Range struct {
	Name   string
	Ours   bool // of the cluster that was asked for
	Prefix netip.Prefix
}

// Ranges lists the project's networks.
func Ranges(ctx context.Context, c *hcloud.Client, cluster string) ([]Range, error) {
	networks, err := c.Network.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the project's networks: %w", explain(err))
	}
	var ranges []Range
	for _, n := range networks {
		if n.IPRange == nil {
			continue
		}
		prefix, err := netip.ParsePrefix(n.IPRange.String())
		if err != nil {
			return nil, fmt.Errorf("read the range of network %s: %w", n.Name, err)
		}
		of, _ := owner(n.Labels)
		ranges = append(ranges, Range{Name: n.Name, Ours: of == cluster, Prefix: prefix})
	}
	return ranges, nil
}

// Names are those that a cluster's resources will have. Part of a server's and a load balancer's is made up when it is
// made.
type Names struct {
	Networks, PlacementGroups, Firewalls []string
	Servers, LoadBalancers               *regexp.Regexp
}

// Taken lists what in the project has a name that the cluster's resources will have, and is not the cluster's: Hetzner
// allows no second network, placement group, firewall, server or load balancer of a name.
func Taken(ctx context.Context, c *hcloud.Client, cluster string, names Names) ([]string, error) {
	var taken []string
	note := func(kind Kind, id int64, name string, wanted bool, labels map[string]string) {
		if of, _ := owner(labels); wanted && of != cluster {
			taken = append(taken, Resource{Kind: kind, ID: id, Name: name}.String())
		}
	}
	err := inTurn(
		visit(ctx, KindNetwork, c.Network.All, func(n *hcloud.Network) {
			note(KindNetwork, n.ID, n.Name, slices.Contains(names.Networks, n.Name), n.Labels)
		}),
		visit(ctx, KindPlacementGroup, c.PlacementGroup.All, func(g *hcloud.PlacementGroup) {
			note(KindPlacementGroup, g.ID, g.Name, slices.Contains(names.PlacementGroups, g.Name), g.Labels)
		}),
		visit(ctx, KindFirewall, c.Firewall.All, func(w *hcloud.Firewall) {
			note(KindFirewall, w.ID, w.Name, slices.Contains(names.Firewalls, w.Name), w.Labels)
		}),
		visit(ctx, KindServer, c.Server.All, func(s *hcloud.Server) {
			note(KindServer, s.ID, s.Name, matches(names.Servers, s.Name), s.Labels)
		}),
		visit(ctx, KindLoadBalancer, c.LoadBalancer.All, func(b *hcloud.LoadBalancer) {
			note(KindLoadBalancer, b.ID, b.Name, matches(names.LoadBalancers, b.Name), b.Labels)
		}))
	return taken, err
}

func matches(pattern *regexp.Regexp, name string) bool {
	return pattern != nil && pattern.MatchString(name)
}
