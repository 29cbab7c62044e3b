package statedir

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// recordedJournal is a journal whose writes are effects, named after the record
// that they bring.
type recordedJournal struct {
	flow.Journal
	effects *effect.Recorder

	mu    sync.Mutex
	known map[string]flow.Record
}

// NewRecordedJournal is the journal of a folder.
func NewRecordedJournal(state Dir, of Owner, environment string, effects *effect.Recorder) flow.Journal {
	disk := effects.Disk(flow.LocalDisk{})
	return &recordedJournal{Journal: state.Claimed(of, environment, flow.FolderOn(string(state), disk)), effects: effects}
}

// NewFolderJournal is the same for a folder in a state folder, which belongs to
// the run that holds the state folder's own lock.
func NewFolderJournal(dir string, effects *effect.Recorder) flow.Journal {
	return &recordedJournal{Journal: flow.FolderOn(dir, effects.Disk(flow.LocalDisk{})), effects: effects}
}

// Load implements flow.Journal.
func (j *recordedJournal) Load(ctx context.Context) (flow.Snapshot, error) {
	s, err := j.Journal.Load(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.know(s)
	return s, err
}

// Save implements flow.Journal.
func (j *recordedJournal) Save(ctx context.Context, s flow.Snapshot) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.effects.Do(ctx, effect.Journal, "save", j.news(s), func() error { return j.Journal.Save(ctx, s) })
	if err == nil {
		j.know(s)
		j.effects.Saved()
	}
	return err
}

// Append implements flow.Appender.
func (j *recordedJournal) Append(ctx context.Context, change flow.Snapshot) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.effects.Do(ctx, effect.Journal, "save", j.news(change), func() error {
		return flow.Append(ctx, j.Journal, change)
	})
	if err == nil {
		if j.known == nil {
			j.known = map[string]flow.Record{}
		}
		maps.Copy(j.known, change.Steps)
		j.effects.Saved()
	}
	return err
}

// know remembers a whole snapshot, whose map the run changes later.
func (j *recordedJournal) know(s flow.Snapshot) {
	j.known = maps.Clone(s.Steps)
}

// news is what a snapshot says that was not known: "wait-cp/done".
func (j *recordedJournal) news(s flow.Snapshot) string {
	var news []string
	for name, rec := range s.Steps {
		if was, ok := j.known[name]; !ok || !reflect.DeepEqual(was, rec) {
			news = append(news, name+"/"+string(rec.State))
		}
	}
	slices.Sort(news)
	if len(news) == 0 {
		return "nothing-new"
	}
	return strings.Join(news, "+")
}
