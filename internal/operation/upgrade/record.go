package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	folder     = "upgrade" // of an upgrade in the state folder: its record and its journal
	recordFile = "upgrade.json"
)

// Files is the folder of an upgrade in a state folder.
func Files(files platform.Files) platform.Files { return files.Folder(folder) }

// Record is the file that says that an upgrade is under way. It is removed with its folder when the upgrade has ended.
type Record struct {
	Began time.Time `json:"began"`
	From  Versions  `json:"from"`
	To    Versions  `json:"to"`
	// InPlace tells that it was agreed to upgrade Talos without replacing servers.
	InPlace bool `json:"inPlace,omitempty"`
	// Configuration is what it was agreed to change besides versions (Examination.Configuration).
	Configuration []string `json:"configuration,omitempty"`
	// Digest is Options.Digest; records of older releases have none. Other is Options.Other.
	Digest string `json:"digest,omitempty"`
	Other  bool   `json:"other,omitempty"`
	// Again are the words to type to resume it, behind the command's name: "upgrade", "--to-set", "current". Records of
	// older releases have none, and no Stages.
	Again []string `json:"again,omitempty"`
	// Stages are the names of its stages, as they were when it began.
	Stages []string `json:"stages,omitempty"`
	// PauseAfter is the stage after which the operator asked to end, or FirstServer; empty: none.
	PauseAfter string `json:"pauseAfter,omitempty"`
	// Aborted tells that the replacement of its first server was undone, or begun to be: it is asked for again.
	Aborted bool `json:"aborted,omitempty"`
}

// Said is what the operator said of an upgrade that begins or is resumed.
type Said struct {
	Again      []string // Record.Again
	PauseAfter string   // Record.PauseAfter
}

// Command are the words to type to resume the upgrade, without a pause.
func (r *Record) Command() []string {
	if len(r.Again) > 0 {
		return r.Again
	}
	words := []string{"upgrade"}
	if r.InPlace {
		words = append(words, "--in-place")
	}
	for _, variable := range variables() {
		if c, changed := change(r.From, r.To, variable); changed {
			words = append(words, variable+"="+c.To)
		}
	}
	return words
}

// Target is what the cluster is upgraded to: "Talos Linux v1.13.9, Kubernetes v1.33.13".
func (r *Record) Target() string {
	var all []string
	for _, variable := range variables() {
		if c, changed := change(r.From, r.To, variable); changed {
			all = append(all, title(variable)+" "+c.To)
		}
	}
	if len(r.Configuration) > 0 {
		all = append(all, "what is configured")
	}
	if len(all) == 0 {
		return "the configured versions"
	}
	return strings.Join(all, ", ")
}

// Explains tells whether the upgrade is why the configuration has one version and the cluster another: both lie on its
// way.
func (r *Record) Explains(variable, configured, live string) bool {
	c, changed := change(r.From, r.To, variable)
	if !changed || configured != c.From && configured != c.To {
		return false
	}
	return live != "" && compare(live, c.From) >= 0 && compare(live, c.To) <= 0
}

// ByApply tells whether apply began it.
func (r *Record) ByApply() bool {
	return len(r.Configuration) > 0 || len(r.Again) > 0 && r.Again[0] == "apply"
}

// Progress is how far an upgrade that was begun has come.
type Progress struct {
	Done  []string // stages
	At    string   // the first stage that is not done; empty: all are
	Begun bool     // that stage has begun
	Why   string   // why it failed; empty: it did not
}

// Progress reads it from the upgrade's journal.
func (r *Record) Progress(ctx context.Context, files platform.Files) (p Progress, err error) {
	journal, err := flow.Folder(Files(files).String()).Load(ctx)
	if err != nil {
		return p, fmt.Errorf("read how far the upgrade has come: %w", err)
	}
	stages := r.Stages
	if _, ran := journal.Steps[FirstServer]; ran && r.PauseAfter == FirstServer {
		stages = append([]string{FirstServer}, stages...)
	}
	for _, stage := range stages {
		step := journal.Steps[lastStepOf(stage)]
		if step.State == flow.StateDone {
			p.Done = append(p.Done, stage)
			continue
		}
		p.At, p.Begun = stage, step.State != ""
		if step.State == flow.StateFailed {
			p.Why = step.Error
		}
		return p, nil
	}
	for name, step := range journal.Steps {
		if len(r.Stages) == 0 && step.State != flow.StateDone {
			p.At, p.Begun = name, true
		}
	}
	return p, nil
}

// lastStepOf is the name of the last step of a stage.
func lastStepOf(stage string) string {
	if stage == StageWorkers {
		return "wait-workers"
	}
	return stage
}

// Same tells whether an upgrade is the one that was agreed to, or the rest of it.
func (r *Record) Same(x Examination) bool {
	return r != nil && maps.Equal(r.To, x.To) && r.InPlace == x.InPlace &&
		!slices.ContainsFunc(x.Configuration, func(s string) bool { return !slices.Contains(r.Configuration, s) })
}

// Agreed tells whether the operator agreed to an upgrade as it is now, with its configuration.
func (r *Record) Agreed(x Examination) bool {
	return r.Same(x) && !r.Aborted && (r.Digest == "" || r.Digest == x.digest)
}

// ReadRecord reads it; nil where no upgrade is under way.
func ReadRecord(files platform.Files) (*Record, error) {
	data, err := Files(files).Read(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &Record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the upgrade in %s: %w", Files(files), err)
	}
	return r, nil
}

// Begin records that an upgrade was agreed to. Where one to other versions was under way, that one's journal is
// removed: what it has done is found in the cluster.
func Begin(files platform.Files, x Examination, said Said) error {
	r, err := ReadRecord(files)
	if err != nil {
		return err
	}
	if r != nil && !r.Same(x) {
		if err := End(files); err != nil {
			return err
		}
		r = nil
	}
	if r == nil {
		r = &Record{Began: time.Now().UTC(), From: x.From, To: x.To, InPlace: x.InPlace,
			Configuration: x.Configuration}
		for _, s := range x.Stages {
			r.Stages = append(r.Stages, s.Name)
		}
	}
	r.Again, r.PauseAfter, r.Digest, r.Other, r.Aborted = said.Again, said.PauseAfter, x.digest, x.other, false
	return r.write(files)
}

// Abort records that its first server is put back.
func (r *Record) Abort(files platform.Files) error {
	r.Aborted = true
	return r.write(files)
}

func (r *Record) write(files platform.Files) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return Files(files).Write(recordFile, data)
}

// End removes the record and the journal of an upgrade.
func End(files platform.Files) error { return Files(files).RemoveFolder() }
