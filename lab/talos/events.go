package talos

import (
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// keptEvents is how many events a server remembers, as Talos does.
const keptEvents = 1000

// eventTypePrefix precedes the message's name in an event's type URL; machinery's client reads no other.
const eventTypePrefix = "talos/runtime/"

// eventLog is a server's log of machine events since its boot. The zero value is ready to use.
type eventLog struct {
	mu      sync.Mutex
	next    int
	kept    []loggedEvent // oldest first
	changed chan struct{} // closed and replaced with every event
}

type loggedEvent struct {
	at    time.Time
	event *machine.Event
}

// publish appends an event. A message that cannot be marshalled is a mistake in this package.
func (l *eventLog) publish(payload proto.Message) {
	value, err := proto.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", payload, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, loggedEvent{at: time.Now(), event: &machine.Event{
		Id:   eventID(l.next),
		Data: &anypb.Any{TypeUrl: eventTypePrefix + string(payload.ProtoReflect().Descriptor().FullName()), Value: value},
	}})
	l.next++
	if len(l.kept) > keptEvents {
		l.kept = l.kept[len(l.kept)-keptEvents:]
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// eventID numbers events so that their ids sort as they happened.
func eventID(n int) string { return fmt.Sprintf("%020d", n) }

// tail returns the number of the first event that a request wants: of all events so far none, unless it says so.
func (l *eventLog) tail(r *machine.EventsRequest) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.next - len(l.kept)
	from := l.next
	switch {
	case r.TailEvents < 0:
		from = oldest
	case r.TailEvents > 0:
		from = max(oldest, l.next-int(r.TailEvents))
	case r.TailId != "":
		for from = oldest; from < l.next && eventID(from) <= r.TailId; from++ {
		}
	case r.TailSeconds > 0:
		since := time.Now().Add(-time.Duration(r.TailSeconds) * time.Second)
		for from > oldest && l.kept[from-1-oldest].at.After(since) {
			from--
		}
	}
	return from
}

// after returns the events from number from on, the number after the last one, and a channel that is closed when there
// are more.
func (l *eventLog) after(from int) ([]*machine.Event, int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	oldest := l.next - len(l.kept)
	var events []*machine.Event
	for n := max(from, oldest); n < l.next; n++ {
		events = append(events, l.kept[n-oldest].event)
	}
	return events, l.next, l.changed
}
