package doctor

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// addressRanges holds the ranges against each other and against this machine's routes: what lies behind a route of the
// same addresses, a VPN's say, could not be reached beside the cluster. Once the network is there, a route to it is
// meant.
func (d *Doctor) addressRanges(ctx context.Context) Finding {
	v := &config.Findings{}
	v.Networks(d.cfg)
	if len(v.Errs) > 0 {
		var texts []string
		for _, e := range v.Errs {
			texts = append(texts, e.Error())
		}
		return failed("change the ranges", "%s", strings.Join(texts, "; "))
	}
	own, err := netip.ParsePrefix(d.cfg.NetworkCIDR)
	if err != nil {
		return failed("change NETWORK_CIDR", "%v", err)
	}
	if d.tools.Hetzner != nil {
		if id, err := hetzner.NetworkID(ctx, d.tools.Hetzner, d.cfg.ClusterName); err == nil && id != 0 {
			return ok("the network %s is there already, and the ranges in it do not overlap", own)
		}
	}
	routes, err := d.routes()
	if err != nil {
		return unknown("compare NETWORK_CIDR with this machine's routes", "the ranges do not overlap each other; this "+
			"machine's routes cannot be read: %v", err)
	}
	var overlaps []string
	for _, r := range routes {
		if r.Overlaps(own) && !slices.Contains(overlaps, r.String()) {
			overlaps = append(overlaps, r.String())
		}
	}
	if len(overlaps) > 0 {
		return failed("choose another NETWORK_CIDR, with the ranges in it", "%s overlaps this machine's own routes: %s", own,
			strings.Join(overlaps, ", "))
	}
	return ok("the ranges overlap neither each other nor this machine's %d routes", len(routes))
}

// routeFile is Linux's table of IPv4 routes.
const routeFile = "/proc/net/route"

// ownRoutes are this machine's IPv4 routes but for the default, or, where only those are to be had, its own networks.
// Loopback does not count.
func ownRoutes() ([]netip.Prefix, error) {
	var routes []netip.Prefix
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			routes = append(routes, p.Masked())
		}
	}
	table, err := os.ReadFile(routeFile)
	if errors.Is(err, fs.ErrNotExist) {
		return routes, nil
	}
	if err != nil {
		return nil, err
	}
	return append(routes, parseRoutes(string(table))...), nil
}

// parseRoutes reads Linux's table: the second column is the destination and the eighth the mask, in the byte order of
// the machine, which is little endian on all that Slipway is built for.
func parseRoutes(table string) []netip.Prefix {
	var routes []netip.Prefix
	lines := bufio.NewScanner(strings.NewReader(table))
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) < 8 {
			continue
		}
		destination, errD := hex.DecodeString(columns[1])
		mask, errM := hex.DecodeString(columns[7])
		if errD != nil || errM != nil || len(destination) != 4 || len(mask) != 4 {
			continue
		}
		length := bits.OnesCount32(binary.LittleEndian.Uint32(mask))
		slices.Reverse(destination)
		address := netip.AddrFrom4([4]byte(destination))
		if length > 0 && !address.IsLoopback() {
			routes = append(routes, netip.PrefixFrom(address, length).Masked())
		}
	}
	return routes
}

// manifests renders them and reports what checkManifests finds.
func (d *Doctor) manifests(context.Context) Finding {
	objects, err := checks.Rendered(d.cfg, d.sources)
	if err != nil {
		return failed("correct the file", "%v", err)
	}
	if wrong := checks.Objects(d.cfg, d.sources, objects); len(wrong) > 0 {
		return mistake(wrong[0])
	}
	return ok("%d objects are rendered, and have what the providers cannot do without", len(objects))
}

// helmValues looks for what the charts allow and what does not work in a cluster of Talos servers at Hetzner.
func (d *Doctor) helmValues(context.Context) Finding {
	for _, in := range render.AllCharts(d.cfg, d.sources) {
		if f := checks.ChartValues(d.cfg, d.sources, in); f != nil {
			return failed(f.Hint, "%s", f.Reason)
		}
	}
	return ok("Cilium fits Talos (capabilities, cgroups, KubePrism), the Hetzner CCM knows the network, the Talos CCM " +
		"approves certificates only")
}

// mistake makes a mistake in a file a finding.
func mistake(e checks.FileError) Finding { return failed(e.Hint, "%s", e.Reason()) }
