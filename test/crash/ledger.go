package crash

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Result is how a case came out.
type Result string

// The results. A missed case is one whose effect never came, so that nothing was killed, or whose fault never hit: it
// proves nothing, and counts as nothing.
const (
	Good    Result = "good"
	Bad     Result = "bad"
	Missed  Result = "missed"
	Skipped Result = "skipped"
)

// Entry is a line of the ledger.
type Entry struct {
	Case     string    `json:"case"` // its id
	Kind     Kind      `json:"kind"`
	Result   Result    `json:"result"`
	Covered  []string  `json:"covered,omitempty"` // "<point> <key>" of every kill
	Kills    int       `json:"kills,omitempty"`
	Findings []string  `json:"findings,omitempty"`
	Note     string    `json:"note,omitempty"`
	Seconds  float64   `json:"seconds"`
	Resumed  float64   `json:"resumed,omitempty"` // seconds of the last run
	Rest     float64   `json:"rest,omitempty"`    // seconds that the same takes an undisturbed run
	At       time.Time `json:"at"`
}

// Ledger is a file with a line for every case that was run on one state of the code.
type Ledger struct {
	path    string
	Entries []Entry
}

// OpenLedger reads an existing ledger. It removes an incomplete last line, which a killed suite leaves.
func OpenLedger(path string) (*Ledger, error) {
	l := &Ledger{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	whole := 0
	for whole < len(data) {
		advance, line, _ := bufio.ScanLines(data[whole:], false)
		if advance == 0 {
			break
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the ledger %s: %w; remove it to start again", path, err)
		}
		l.Entries = append(l.Entries, e)
		whole += advance
	}
	return l, os.Truncate(path, int64(whole))
}

// Add appends an entry.
func (l *Ledger) Add(e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	l.Entries = append(l.Entries, e)
	return errors.Join(err, file.Close())
}

// Last is the last entry of a case.
func (l *Ledger) Last(id string) (Entry, bool) {
	for i := len(l.Entries) - 1; i >= 0; i-- {
		if l.Entries[i].Case == id {
			return l.Entries[i], true
		}
	}
	return Entry{}, false
}
