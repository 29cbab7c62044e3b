package talos

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The services of a server that others depend on.
const (
	serviceEtcd    = "etcd"
	serviceKubelet = "kubelet"
	serviceTrustd  = "trustd"
	serviceAPID    = "apid"
)

// playedServices exist on every server and need nothing that the lab has: they run from the boot on.
var playedServices = []string{"auditd", "containerd", "cri", "machined", "syslogd", "udevd"}

// States of a service, as Talos names them.
const (
	stateInitialized = "Initialized"
	statePreparing   = "Preparing"
	stateWaiting     = "Waiting"
	stateRunning     = "Running"
	stateStopping    = "Stopping"
	stateFinished    = "Finished"
	stateFailed      = "Failed"
)

// keptServiceEvents is how many events of each service a server remembers, as Talos does.
const keptServiceEvents = 64

// services are a server's services with their states and health, for ServiceList. Every service has a health and at
// least one event, because clients rely on both.
type services struct {
	events *eventLog
	log    *slog.Logger

	mu   sync.Mutex
	byID map[string]*service
}

type service struct {
	state, message string
	healthKnown    bool
	healthy        bool
	healthMessage  string
	healthChanged  time.Time
	events         []*machine.ServiceEvent
}

func newServices(events *eventLog, log *slog.Logger, controlPlane bool) *services {
	s := &services{events: events, log: log, byID: map[string]*service{}}
	ids := append([]string{serviceAPID, serviceKubelet}, playedServices...)
	if controlPlane {
		ids = append(ids, serviceEtcd, serviceTrustd)
	}
	for _, id := range ids {
		s.set(id, stateInitialized, "Initialized")
	}
	return s
}

// set records a service's state and its reason. Setting the current state changes nothing. The health of a service that
// has just started or does not run is unknown. It returns whether anything changed.
func (s *services) set(id, state, message string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byID[id]
	if v == nil {
		v = &service{healthChanged: time.Now()}
		s.byID[id] = v
	}
	if v.state == state && v.message == message {
		return false
	}
	if v.state != state {
		v.healthKnown, v.healthy, v.healthMessage, v.healthChanged = false, false, "", time.Now()
	}
	v.state, v.message = state, message
	v.events = append(v.events, &machine.ServiceEvent{Msg: message, State: state, Ts: timestamppb.Now()})
	if len(v.events) > keptServiceEvents {
		v.events = v.events[len(v.events)-keptServiceEvents:]
	}
	s.publish(id, v)
	return true
}

// run records that a service runs and is healthy.
func (s *services) run(id, message string) {
	s.set(id, stateRunning, message)
	s.health(id, nil)
}

// fail records that a service failed and is to be tried again.
func (s *services) fail(id string, problem error) {
	if s.set(id, stateFailed, problem.Error()) {
		s.log.Warn("a service failed and is tried again", "service", id, "reason", problem)
	}
}

// health records the outcome of a service's health check.
func (s *services) health(id string, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byID[id]
	healthy, message := problem == nil, ""
	if problem != nil {
		message = problem.Error()
	}
	if v.healthKnown && v.healthy == healthy && v.healthMessage == message {
		return
	}
	flipped := !v.healthKnown || v.healthy != healthy
	v.healthKnown, v.healthy, v.healthMessage = true, healthy, message
	if flipped {
		v.healthChanged = time.Now()
		s.publish(id, v)
	}
}

// get returns a service's state and message.
func (s *services) get(id string) (state, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byID[id]
	if v == nil {
		return "", ""
	}
	if v.healthKnown && !v.healthy {
		return v.state, "not healthy: " + v.healthMessage
	}
	return v.state, v.message
}

// list returns all services, sorted by id.
func (s *services) list() []*machine.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []*machine.ServiceInfo
	for id, v := range s.byID {
		infos = append(infos, &machine.ServiceInfo{
			Id: id, State: v.state, Health: v.healthInfo(),
			Events: &machine.ServiceEvents{Events: slices.Clone(v.events)},
		})
	}
	slices.SortFunc(infos, func(a, b *machine.ServiceInfo) int {
		if a.Id < b.Id {
			return -1
		}
		return 1
	})
	return infos
}

func (v *service) healthInfo() *machine.ServiceHealth {
	return &machine.ServiceHealth{
		Unknown: !v.healthKnown, Healthy: v.healthy, LastMessage: v.healthMessage,
		LastChange: timestamppb.New(v.healthChanged),
	}
}

// actions maps a service's state to the action of its event, if they differ.
var actions = map[string]machine.ServiceStateEvent_Action{
	stateInitialized: machine.ServiceStateEvent_INITIALIZED,
	statePreparing:   machine.ServiceStateEvent_PREPARING,
	stateWaiting:     machine.ServiceStateEvent_WAITING,
	stateRunning:     machine.ServiceStateEvent_RUNNING,
	stateStopping:    machine.ServiceStateEvent_STOPPING,
	stateFinished:    machine.ServiceStateEvent_FINISHED,
	stateFailed:      machine.ServiceStateEvent_FAILED,
}

func (s *services) publish(id string, v *service) {
	s.log.Debug("service", "id", id, "state", v.state, "message", v.message, "health", v.healthMessage)
	s.events.publish(&machine.ServiceStateEvent{Service: id, Action: actions[v.state], Message: v.message,
		Health: v.healthInfo()})
}
