package talos

import (
	"log/slog"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/slipway-k8s/slipway/lab/plane"
)

func TestEventLog(t *testing.T) {
	l := &eventLog{}
	_, next, more := l.after(l.tail(&machine.EventsRequest{}))
	for range keptEvents + 10 {
		l.publish(&machine.SequenceEvent{Sequence: "boot"})
	}
	select {
	case <-more:
	default:
		t.Error("new events are not sent")
	}
	for name, c := range map[string]struct {
		request *machine.EventsRequest
		want    int
	}{
		"none unless asked for": {&machine.EventsRequest{}, 0},
		"all that are kept":     {&machine.EventsRequest{TailEvents: -1}, keptEvents},
		"the last three":        {&machine.EventsRequest{TailEvents: 3}, 3},
		"more than are kept":    {&machine.EventsRequest{TailEvents: 5000}, keptEvents},
		"after an id":           {&machine.EventsRequest{TailId: eventID(keptEvents + 5)}, 4},
		"of the last minute":    {&machine.EventsRequest{TailSeconds: 60}, keptEvents},
	} {
		if events, _, _ := l.after(l.tail(c.request)); len(events) != c.want {
			t.Errorf("%s: %d, want %d", name, len(events), c.want)
		}
	}
	// A reader that is too slow misses the oldest.
	if events, after, _ := l.after(next); len(events) != keptEvents || after != keptEvents+10 {
		t.Errorf("%d events, then from %d on", len(events), after)
	}
}

func TestServicesRememberAndTell(t *testing.T) {
	events := &eventLog{}
	s := newServices(events, slog.New(slog.DiscardHandler), true)
	_, from, _ := events.after(0)
	if !s.set(serviceEtcd, stateWaiting, "why") || s.set(serviceEtcd, stateWaiting, "why") {
		t.Error("a change is sent once")
	}
	s.run(serviceEtcd, "Started")
	for range 2 * keptServiceEvents {
		s.set(serviceEtcd, stateWaiting, "one")
		s.set(serviceEtcd, stateWaiting, "two")
	}
	published, _, _ := events.after(from)
	if len(published) < 3 {
		t.Errorf("%d events of the service", len(published))
	}
	for _, v := range s.list() {
		if v.Id != serviceEtcd {
			continue
		}
		if v.State != stateWaiting || !v.Health.Unknown || v.Health.Healthy || len(v.Events.Events) != keptServiceEvents {
			t.Errorf("%v", v)
		}
	}
}

func TestFormerSelf(t *testing.T) {
	config := &plane.EtcdConfig{Name: "one", Address: "127.0.0.9"}
	for name, c := range map[string]struct {
		member *etcdserverpb.Member
		want   bool
	}{
		"of the same name":        {&etcdserverpb.Member{Name: "one", PeerURLs: []string{"https://127.0.0.8:2380"}}, true},
		"added and never started": {&etcdserverpb.Member{PeerURLs: []string{config.PeerURL()}}, true},
		"another": {&etcdserverpb.Member{Name: "two", PeerURLs: []string{"https://127.0.0.8:2380"}},
			false},
		"another that never started": {&etcdserverpb.Member{PeerURLs: []string{"https://127.0.0.8:2380"}}, false},
	} {
		if got := formerSelf(c.member, config); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
