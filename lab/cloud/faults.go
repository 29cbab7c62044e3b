package cloud

import (
	"encoding/json"
	"fmt"
	"time"
)

// FaultKind is a kind of fault.
type FaultKind string

// The kinds of faults.
const (
	FaultOutOfStock FaultKind = "out-of-stock" // creating a server of ServerType in Location answers resource_unavailable
	FaultRateLimit  FaultKind = "rate-limit"   // 429 rate_limit_exceeded
	FaultError      FaultKind = "error"        // Status (500 unless given) with Code and Message
	FaultLostReply  FaultKind = "lost-reply"   // the request takes effect, then the connection closes without a reply
	// no effect, no reply for Delay (or until the client closes the connection), then 504
	FaultTimeout     FaultKind = "timeout"
	FaultReset       FaultKind = "reset"        // no effect, and the connection is reset
	FaultActionError FaultKind = "action-error" // the action Command ends in error with Code and Message
	FaultSlowBoot    FaultKind = "slow-boot"    // the server is running, but its machine starts only after Delay
	// lists show the state of Delay ago; a record requested by its id is up to date
	FaultStaleLists FaultKind = "stale-lists"
)

// Kinds are all kinds of faults.
func Kinds() []FaultKind {
	return []FaultKind{
		FaultOutOfStock, FaultRateLimit, FaultError, FaultLostReply, FaultTimeout, FaultReset, FaultActionError,
		FaultSlowBoot, FaultStaleLists,
	}
}

// Duration is a time.Duration that is a string like "1.5s" in JSON.
type Duration time.Duration

// MarshalJSON writes the duration as time.Duration prints it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads what time.ParseDuration reads.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration is a string like \"1.5s\": %w", err)
	}
	parsed, err := time.ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// Fault is a fault injected on request. Its fields narrow what it affects; without any it affects everything that its
// kind can affect.
type Fault struct {
	Kind FaultKind `json:"kind"`

	Method string `json:"method,omitempty"` // GET, POST, PUT, DELETE
	Path   string `json:"path,omitempty"`   // pattern as in path.Match, without /v1: "/servers/*"
	Actor  string `json:"actor,omitempty"`  // only requests whose user agent contains this

	ServerType string `json:"serverType,omitempty"` // out-of-stock
	Location   string `json:"location,omitempty"`   // out-of-stock
	Server     string `json:"server,omitempty"`     // slow-boot: pattern of the server's name
	Command    string `json:"command,omitempty"`    // action-error: e.g. create_server

	Status  int      `json:"status,omitempty"`  // error: HTTP status
	Code    string   `json:"code,omitempty"`    // error, action-error: the API's error code
	Message string   `json:"message,omitempty"` // error, action-error
	Delay   Duration `json:"delay,omitempty"`   // timeout, slow-boot, stale-lists; rate-limit: until RateLimit-Reset

	Skip        int     `json:"skip,omitempty"`        // the first hits that are skipped
	Times       int     `json:"times,omitempty"`       // number of hits after which it ends; 0: until removed
	Probability float64 `json:"probability,omitempty"` // chance of each hit, seeded; 0: always
	Seed        uint64  `json:"seed,omitempty"`        // for Probability; 0: the cloud's own
}
