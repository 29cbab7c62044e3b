package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/platform"
)

// kept is how many records of ended runs a store keeps, the newest.
const kept = 100

// record is what serve knows of a run that it started. Its JSON names are stable.
type record struct {
	ID          string    `json:"id"`
	Environment string    `json:"world"` // in which it works: statedir.EnvironmentLab or statedir.EnvironmentHetzner
	Targets     []string  `json:"targets"`
	By          string    `json:"by"` // who asked for it
	Started     time.Time `json:"started"`
	Host        string    `json:"host"`
	// PID and Process, when the process began, tell the process from a later one; 0: serve was killed before it knew.
	PID     int       `json:"pid,omitempty"`
	Process time.Time `json:"processStarted,omitzero"`
	Run     string    `json:"run,omitempty"` // the run's id in the state folder, once it has one

	Resumes   string `json:"resumes,omitempty"`   // the id of the run that it resumes
	Automatic int    `json:"automatic,omitempty"` // how many times in a row serve has resumed it by itself

	CancelledBy string    `json:"cancelledBy,omitempty"`
	Cancelled   time.Time `json:"cancelled,omitzero"`

	Ended   time.Time `json:"ended,omitzero"`
	Exit    *int      `json:"exit,omitempty"`    // absent: the process still works, was killed, or ended unseen
	Signal  string    `json:"signal,omitempty"`  // that killed it
	Message string    `json:"message,omitempty"` // the end of what it said on standard error
}

// Done reports whether it is known that the process has ended.
func (r record) Done() bool { return !r.Ended.IsZero() }

// recordStore is a folder of records.
type recordStore struct {
	dir  string
	hide *redact.Redactor
}

// openRecords makes the folder where it is missing.
func openRecords(dir string, hide *redact.Redactor) (*recordStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder for records of runs: %w", err)
	}
	return &recordStore{dir: dir, hide: hide}, nil
}

var runID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[a-z0-9]+$`)

// Errors is the path of the file for the standard error of a run.
func (s *recordStore) Errors(id string) string { return filepath.Join(s.dir, id+".stderr") }

// HideErrors reads what a run that has ended said on standard error. The command hides its secrets before it says
// anything; should one be in the file all the same, a panic's for example, it is taken out.
func (s *recordStore) HideErrors(id string) (string, error) {
	data, err := os.ReadFile(s.Errors(id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	text := s.hide.Text(string(data))
	if err == nil && text != string(data) {
		err = platform.FilesIn(s.dir).Write(filepath.Base(s.Errors(id)), []byte(text))
	}
	return text, err
}

// Save writes a record, without secrets, in one piece.
func (s *recordStore) Save(r record) error {
	if !runID.MatchString(r.ID) {
		return fmt.Errorf("save the record of run %q: this is no id of a run", r.ID)
	}
	data, err := json.MarshalIndent(s.without(r), "", "  ")
	if err == nil {
		err = platform.FilesIn(s.dir).Write(r.ID+".json", append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save the record of run %s: %w", r.ID, err)
	}
	return nil
}

// without is a copy of a record without secrets.
func (s *recordStore) without(r record) record {
	r.Targets = slices.Clone(r.Targets)
	for i := range r.Targets {
		s.hide.Each(&r.Targets[i])
	}
	s.hide.Each(&r.By, &r.CancelledBy, &r.Message)
	return r
}

// Load reads all records, the oldest first. One that cannot be read is in broken, and does not keep the others away.
func (s *recordStore) Load() (all []record, broken error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the records of runs: %w", err)
	}
	for _, e := range entries { // sorted by name, and so by time
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is || !runID.MatchString(name) {
			continue
		}
		var r record
		data, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && r.ID != name {
			err = fmt.Errorf("it is the record of run %q", r.ID)
		}
		if err != nil {
			broken = errors.Join(broken, fmt.Errorf("read the record %s: %w", filepath.Join(s.dir, e.Name()), err))
			continue
		}
		all = append(all, r)
	}
	return all, broken
}

// Prune removes the oldest records of ended runs that are too many, with what belongs to them.
func (s *recordStore) Prune(all []record) (left []record, err error) {
	many := len(all) - kept
	for _, r := range all {
		if many <= 0 || !r.Done() {
			left = append(left, r)
			continue
		}
		many--
		for _, path := range []string{filepath.Join(s.dir, r.ID+".json"), s.Errors(r.ID)} {
			if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}
	return left, err
}
