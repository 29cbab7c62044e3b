package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// snapshotStall is how long a node may leave the stream of a snapshot empty. etcd reads it off its disk.
	snapshotStall = 2 * time.Minute
	// snapshotSay is after how many bytes the next line of progress comes.
	snapshotSay = 256 << 20
)

// takeSnapshot asks members of etcd one after another.
func takeSnapshot(ctx context.Context, say flow.Say, t talos.Client, sources []EtcdSource, h *Header) (io.ReadCloser,
	error) {
	var why wait.Reasons
	for _, d := range sources {
		members, node, err := etcdview.AskMember(ctx, t, d.Route)
		if err != nil {
			why.Add(d.Name, err.Error())
			continue
		}
		say("streaming a snapshot of etcd from %s", d.Name)
		stream, err := openSnapshot(ctx, say, t, d.Route)
		if err != nil {
			why.Add(d.Name, err.Error())
			continue
		}
		h.Versions["TALOS"+versionSuffix] = node.Version
		h.Etcd.From, h.Etcd.Members = d.Route.Endpoint, nil
		for _, m := range members {
			h.Etcd.Members = append(h.Etcd.Members,
				EtcdMember{ID: fmt.Sprintf("%x", m.ID), Name: m.Name, Learner: m.Learner})
		}
		return stream, nil
	}
	return nil, fmt.Errorf("no control plane machine gives a snapshot of etcd: %s", strings.Join(why.Lines(), "; "))
}

// EtcdSource is an address at which the Talos of a member of etcd may answer.
type EtcdSource struct {
	Name  string
	Route talos.Route
}

// etcdSources are the control plane machines, and the load balancer last: where a firewall blocks access to the
// machines from outside, it still leads to one of them.
func etcdSources(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster) (t talos.Client,
	found []EtcdSource, err error) {
	t, machines, err := etcdview.ControlPlane(ctx, tools, manager, cfg.Namespace, cfg.ClusterName)
	if err != nil {
		return nil, nil, err
	}
	add := func(name string, route talos.Route) {
		found = append(found, EtcdSource{name + " (" + route.Endpoint + ")", route})
	}
	for i := range machines {
		for _, route := range etcdview.RoutesOf(&machines[i], "") {
			add(capi.Text(&machines[i], "spec", "infrastructureRef", "name"), route)
		}
	}
	live, err := capi.Get(ctx, manager, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return nil, nil, err
	}
	if address := capi.Text(live, "spec", "controlPlaneEndpoint", "host"); address != "" {
		add("the load balancer", talos.Route{Endpoint: address})
	}
	return t, found, nil
}

// openSnapshot waits for the stream's first byte: a refusal comes in its place.
func openSnapshot(ctx context.Context, say flow.Say, t talos.Client, route talos.Route) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := t.EtcdSnapshot(ctx, route)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	steady := &steadyStream{ReadCloser: stream, ctx: ctx, cancel: cancel, stall: snapshotStall,
		still: fmt.Errorf("the snapshot of etcd stood still for %s", config.Duration(snapshotStall))}
	buffered := bufio.NewReader(&progress{Reader: steady, say: say, next: snapshotSay})
	if _, err := buffered.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it sends an empty snapshot")
		}
		return nil, errors.Join(err, steady.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, steady}, nil
}

// progress says how far a snapshot is.
type progress struct {
	io.Reader
	say     flow.Say
	n, next int64 // bytes
}

// Read implements io.Reader.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if p.n += int64(n); p.n >= p.next {
		p.say("%d MB of the snapshot have come", p.n>>20)
		p.next += snapshotSay
	}
	return n, err
}

// steadyStream is a stream that must not stand still while its reader waits for it.
type steadyStream struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc // of ctx, which ends the stream
	stall  time.Duration
	still  error
}

// Read lets the time run only while it waits, not while the caller processes what was read.
func (s *steadyStream) Read(p []byte) (int, error) {
	watch := time.AfterFunc(s.stall, func() { s.cancel(s.still) })
	n, err := s.ReadCloser.Read(p)
	watch.Stop()
	if err != nil && err != io.EOF && context.Cause(s.ctx) == s.still {
		err = s.still
	}
	return n, err
}

// Close implements io.Closer.
func (s *steadyStream) Close() error {
	defer s.cancel(nil)
	return s.ReadCloser.Close()
}
