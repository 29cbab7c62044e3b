package cloud

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// silence is how long a FaultTimeout without a Delay sends no reply.
const silence = 30 * time.Second

// faultSet holds the faults in force.
type faultSet struct {
	mu     sync.Mutex
	random *rand.Rand
	next   int64
	armed  map[int64]*armedFault
}

// armedFault is a fault with its remaining hits.
type armedFault struct {
	Fault
	hits       int
	random     *rand.Rand // for Probability
	skip, left int        // left -1: no end
	over       chan struct{}
}

// strike is a fault that affects a request or an action.
type strike struct{ Fault }

func newFaultSet(random *rand.Rand) *faultSet {
	return &faultSet{random: random, armed: map[int64]*armedFault{}}
}

// InjectFault puts a fault in force and returns its number.
func (c *Cloud) InjectFault(fault Fault) (int64, error) {
	if err := fault.check(); err != nil {
		return 0, err
	}
	if fault.Kind == FaultStaleLists {
		c.remember(time.Duration(fault.Delay))
	}
	s := c.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	armed := &armedFault{Fault: fault, random: s.random, skip: fault.Skip, left: fault.Times, over: make(chan struct{})}
	if fault.Times == 0 {
		armed.left = -1
	}
	if fault.Seed != 0 {
		armed.random = rand.New(rand.NewPCG(fault.Seed, 1))
	}
	s.armed[s.next] = armed
	return s.next, nil
}

// RemoveFault ends a fault; false if it was not in force.
func (c *Cloud) RemoveFault(id int64) bool {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.disarm(id)
}

func (s *faultSet) disarm(id int64) bool {
	armed, ok := s.armed[id]
	if ok {
		delete(s.armed, id)
		close(armed.over)
	}
	return ok
}

// FollowFault returns a count of a fault's hits so far, and a channel that is closed when it has been removed or has
// hit often enough. For a fault that is not in force, the channel is closed and the count is zero.
func (c *Cloud) FollowFault(id int64) (hits func() int, over <-chan struct{}) {
	s := c.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	armed := s.armed[id]
	if armed == nil {
		closed := make(chan struct{})
		close(closed)
		return func() int { return 0 }, closed
	}
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return armed.hits
	}, armed.over
}

// check refuses a fault that could never hit, for example because of a typing error.
func (f Fault) check() error {
	var wrong []error
	if !slices.Contains(Kinds(), f.Kind) {
		wrong = append(wrong, fmt.Errorf("kind %q is none of %q", f.Kind, Kinds()))
	}
	for _, pattern := range []string{f.Path, f.Server} {
		if _, err := path.Match(pattern, ""); err != nil {
			wrong = append(wrong, fmt.Errorf("pattern %q: %w", pattern, err))
		}
	}
	if f.Skip < 0 || f.Times < 0 || f.Delay < 0 || f.Probability < 0 || f.Probability > 1 {
		wrong = append(wrong, errors.New("skip, times and delay cannot be negative, probability lies between 0 and 1"))
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		wrong = append(wrong, fmt.Errorf("status %d is no error", f.Status))
	}
	if (f.Kind == FaultSlowBoot || f.Kind == FaultStaleLists) && f.Delay == 0 {
		wrong = append(wrong, fmt.Errorf("%s needs a delay", f.Kind))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("injecting a fault: %w", errors.Join(wrong...))
	}
	return nil
}

// hit uses one hit of the first fault that the test accepts.
func (s *faultSet) hit(accepts func(Fault) bool) *strike {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]int64, 0, len(s.armed))
	for id := range s.armed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		armed := s.armed[id]
		if !accepts(armed.Fault) {
			continue
		}
		if armed.skip > 0 {
			armed.skip--
			continue
		}
		if armed.Probability > 0 && armed.random.Float64() >= armed.Probability {
			continue
		}
		armed.hits++
		if armed.left > 0 {
			armed.left--
		}
		if armed.left == 0 {
			s.disarm(id)
		}
		return &strike{armed.Fault}
	}
	return nil
}

// request returns the fault that affects a request, if any: one that fails it, else one that delays a list.
func (s *faultSet) request(r *http.Request, list bool) *strike {
	spoiling := []FaultKind{FaultRateLimit, FaultError, FaultLostReply, FaultTimeout, FaultReset}
	hit := s.hit(func(f Fault) bool { return slices.Contains(spoiling, f.Kind) && f.matches(r) })
	if hit == nil && list {
		hit = s.hit(func(f Fault) bool { return f.Kind == FaultStaleLists && f.matches(r) })
	}
	return hit
}

func (f Fault) matches(r *http.Request) bool {
	return (f.Method == "" || f.Method == r.Method) && matchesPattern(f.Path, r.URL.Path) &&
		strings.Contains(r.UserAgent(), f.Actor)
}

// action finds the error that an action will end with, if any.
func (s *faultSet) action(command string) *schema.ActionError {
	found := s.hit(func(f Fault) bool {
		return f.Kind == FaultActionError && (f.Command == "" || f.Command == command)
	})
	if found == nil {
		return nil
	}
	return &schema.ActionError{Code: orElse(found.Code, "action_failed"), Message: orElse(found.Message, "Action failed")}
}

// boot is how much later than it should a server's machine starts.
func (s *faultSet) boot(server string) time.Duration {
	found := s.hit(func(f Fault) bool { return f.Kind == FaultSlowBoot && matchesPattern(f.Server, server) })
	if found == nil {
		return 0
	}
	return time.Duration(found.Delay)
}

// soldOut says whether creating such a server fails now, and uses a hit.
func (s *faultSet) soldOut(serverType, location string) bool {
	return s.hit(func(f Fault) bool { return f.emptiesStock(serverType, location) }) != nil
}

// soldOut says whether creating such a server fails now.
func (q *call) soldOut(serverType, location string) bool {
	out := q.faults.soldOut(serverType, location)
	if out {
		q.note(FaultOutOfStock)
	}
	return out
}

// begin starts an action for a request. The request's log line notes an error with which a fault will end the action.
func (q *call) begin(command string, resources ...schema.ActionResourceReference) *action {
	begun := q.Cloud.begin(command, resources...)
	if begun.Doomed != nil {
		q.note(FaultActionError)
	}
	return begun
}

// listedOut says whether the type is to be shown as out of stock. It uses no hit.
func (s *faultSet) listedOut(serverType, location string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, armed := range s.armed {
		if armed.skip == 0 && armed.emptiesStock(serverType, location) {
			return true
		}
	}
	return false
}

func (f Fault) emptiesStock(serverType, location string) bool {
	return f.Kind == FaultOutOfStock && (f.ServerType == "" || f.ServerType == serverType) &&
		(f.Location == "" || f.Location == location)
}

// before carries out a fault that replaces the response. It returns false if the request is to be served.
func (s *strike) before(w http.ResponseWriter, r *http.Request) bool {
	switch s.Kind {
	case FaultError:
		status := s.Status
		if status == 0 {
			status = http.StatusInternalServerError
		}
		code := "server_error"
		if status == http.StatusBadGateway {
			code = "bad_gateway"
		}
		writeError(w, &apiError{Code: orElse(s.Code, code), Message: orElse(s.Message, "simulated fault"), status: status})
	case FaultTimeout:
		delay := time.Duration(s.Delay)
		if delay == 0 {
			delay = silence
		}
		select {
		case <-r.Context().Done():
		case <-time.After(delay):
		}
		writeError(w, refuse("timeout", "the request could not be answered in time"))
	case FaultReset:
		reset(w)
	default:
		return false
	}
	return true
}

// noteFault adds a fault to the request's line of the log.
func noteFault(w http.ResponseWriter, kind FaultKind) {
	if watched, ok := w.(*watchedWriter); ok {
		watched.fault = kind
	}
}

// lostReply logs the reply, but does not send it.
type lostReply struct{ http.ResponseWriter }

func (w lostReply) WriteHeader(status int) {
	if watched, ok := w.ResponseWriter.(*watchedWriter); ok {
		watched.log(status)
	}
	panic(http.ErrAbortHandler) // net/http closes the connection without a reply
}

// reset closes the connection with a TCP reset, if it is TCP, else without a reply.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // tls.Conn
		raw = wrapped.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without SO_LINGER the close is orderly, which is no reply either
	}
	_ = raw.Close()
}

func matchesPattern(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
