package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
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

// takeSnapshot asks the control plane machines one after another, and the load balancer last: where a firewall blocks
// access to the machines from outside, it still leads to one of them.
func takeSnapshot(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, manager *kube.Cluster,
	h *Header) (io.ReadCloser, error) {
	config, err := connect.SecretValue(ctx, manager, cfg.Namespace, cfg.ClusterName+"-talosconfig", "talosconfig")
	if err != nil {
		return nil, err
	}
	t, err := tools.Talos(config)
	if err != nil {
		return nil, err
	}
	doors, err := etcdSources(ctx, cfg, manager)
	if err != nil {
		return nil, err
	}
	var why wait.Reasons
	for _, d := range doors {
		members, version, err := askSource(ctx, t, d)
		if err != nil {
			why.Add(d.name, err.Error())
			continue
		}
		say("streaming a snapshot of etcd from %s", d.name)
		stream, err := openSnapshot(ctx, say, t, d.address, snapshotStall)
		if err != nil {
			why.Add(d.name, err.Error())
			continue
		}
		h.Versions["TALOS"+versionSuffix] = version
		h.Etcd.From, h.Etcd.Members = d.address, nil
		for _, m := range members {
			h.Etcd.Members = append(h.Etcd.Members,
				EtcdMember{ID: fmt.Sprintf("%x", m.ID), Name: m.Name, Learner: m.Learner})
		}
		return stream, nil
	}
	return nil, fmt.Errorf("no control plane machine gives a snapshot of etcd: %s", strings.Join(why.Lines(), "; "))
}

// etcdSource is an address at which Talos may answer.
type etcdSource struct{ name, address string }

func etcdSources(ctx context.Context, cfg config.Config, manager *kube.Cluster) ([]etcdSource, error) {
	machines, err := capi.List(ctx, manager, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	var found []etcdSource
	for _, m := range capi.ControlPlaneMachines(machines) {
		name := capi.Text(&m, "spec", "infrastructureRef", "name")
		for _, address := range append(capi.Addresses(&m, capi.AddressExternal),
			capi.Addresses(&m, capi.AddressInternal)...) {
			found = append(found, etcdSource{name + " (" + address + ")", address})
		}
	}
	var live *unstructured.Unstructured
	if live, err = capi.Get(ctx, manager, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName); err != nil {
		return nil, err
	}
	if address := capi.Text(live, "spec", "controlPlaneEndpoint", "host"); address != "" {
		found = append(found, etcdSource{"the load balancer (" + address + ")", address})
	}
	return found, nil
}

// askSource expects a healthy member at the address.
func askSource(ctx context.Context, t talos.Client, d etcdSource) ([]talos.EtcdMember, string, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	node, err := t.Ask(ctx, talos.Route{Endpoint: d.address})
	if err != nil {
		return nil, "", err
	}
	if !node.Healthy {
		return nil, "", fmt.Errorf("its etcd is %q and does not call itself healthy", node.Etcd)
	}
	members, err := t.EtcdMembers(ctx, talos.Route{Endpoint: d.address})
	return members, node.Version, err
}

// openSnapshot waits for the stream's first byte: a refusal comes in its place.
func openSnapshot(ctx context.Context, say flow.Say, t talos.Client, address string,
	stall time.Duration) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := t.EtcdSnapshot(ctx, talos.Route{Endpoint: address})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &snapshotReader{
		stream: stream, cancel: cancel, say: say, next: snapshotSay, stall: stall,
		watch: time.AfterFunc(stall,
			func() { cancel(fmt.Errorf("the snapshot of etcd stood still for %s", config.Duration(stall))) }),
	}
	s.buffered = bufio.NewReader(readerOf(s.receive))
	if _, err := s.buffered.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it sends an empty snapshot")
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }

// snapshotReader reads a stream that must not stand still, and says how far it is.
type snapshotReader struct {
	stream   io.ReadCloser
	buffered *bufio.Reader // over receive
	cancel   context.CancelCauseFunc
	stall    time.Duration
	watch    *time.Timer
	say      flow.Say
	n, next  int64 // bytes
}

// Read implements io.Reader.
func (s *snapshotReader) Read(p []byte) (int, error) { return s.buffered.Read(p) }

// receive lets the time run only while it waits for the node, not while the caller processes what was read.
func (s *snapshotReader) receive(p []byte) (int, error) {
	s.watch.Reset(s.stall)
	n, err := s.stream.Read(p)
	s.watch.Stop()
	if s.n += int64(n); s.n >= s.next {
		s.say("%d MB of the snapshot have come", s.n>>20)
		s.next += snapshotSay
	}
	return n, err
}

// Close implements io.Closer.
func (s *snapshotReader) Close() error {
	s.watch.Stop()
	s.cancel(nil)
	return s.stream.Close()
}
