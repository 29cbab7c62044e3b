package main

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
)

// effectsFile is, in the folder of a run, what the run changed and where.
const effectsFile = "effects.jsonl"

// verbRetire is the effect of putting the journal of a destroyed cluster aside.
const verbRetire = "retire"

// recorder makes the recorder of a run, once its files and its hub are there.
func (r *running) recorder() *effect.Recorder {
	o := effect.Options{
		Lines: r.hide.writer(r.files.effects),
		Warn: func(err error) {
			r.hub.note("what this run changes is not written down any more (%v); the run goes on, and what it knows of the cluster is in the journal", err)
		},
		Step:  r.stepOf,
		Watch: r.watchCalls(),
	}
	if r.faults != nil {
		o.Faults = r.faults()
	}
	return effect.New(o)
}

// stepOf is the step that a context belongs to. Not every library hands the
// context on; where one step alone is at work it is that.
func (r *running) stepOf(ctx context.Context) string {
	if name := flow.StepName(ctx); name != "" {
		return name
	}
	return r.hub.alone()
}

// recordedJournal is a journal whose writes are effects, named after the record
// that they bring.
type recordedJournal struct {
	flow.Journal
	effects *effect.Recorder

	mu    sync.Mutex
	known map[string]flow.Record
}

// newRecordedJournal is the journal of a folder.
func newRecordedJournal(state stateFolder, cluster, world string, effects *effect.Recorder) flow.Journal {
	disk := effects.Disk(flow.LocalDisk{})
	return &recordedJournal{Journal: state.claimed(cluster, world, flow.FolderOn(string(state), disk)), effects: effects}
}

// newFolderJournal is the same for a folder in a state folder, which belongs to
// the run that holds the state folder's own lock.
func newFolderJournal(dir string, effects *effect.Recorder) flow.Journal {
	return &recordedJournal{Journal: flow.FolderOn(dir, effects.Disk(flow.LocalDisk{})), effects: effects}
}

// Load implements flow.Journal.
func (j *recordedJournal) Load(ctx context.Context) (flow.Snapshot, error) {
	s, err := j.Journal.Load(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known = s.Steps
	return s, err
}

// Save implements flow.Journal.
func (j *recordedJournal) Save(ctx context.Context, s flow.Snapshot) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.effects.Do(ctx, effect.Journal, "save", j.news(s), func() error { return j.Journal.Save(ctx, s) })
	if err == nil {
		j.known = s.Steps
		j.effects.Saved()
	}
	return err
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

// recordedKind is kind with its changes written down.
type recordedKind struct {
	kindLibrary
	effects *effect.Recorder
}

func (k recordedKind) create(name, image, kubeconfigPath string, say flow.Say) error {
	return k.effects.Do(context.Background(), effect.Kind, "create", "clusters/"+name, func() error {
		return k.kindLibrary.create(name, image, kubeconfigPath, say)
	})
}

func (k recordedKind) remove(name, kubeconfigPath string) error {
	return k.effects.Do(context.Background(), effect.Kind, "delete", "clusters/"+name, func() error {
		return k.kindLibrary.remove(name, kubeconfigPath)
	})
}

// record makes the lab's client write down what it asks the lab to change.
func (c *labClient) record(effects *effect.Recorder) {
	c.http.Transport = effects.Transport(c.http.Transport, effect.Lab, func(request *http.Request) (verb, object string, ok bool) {
		return strings.ToLower(request.Method), strings.TrimPrefix(request.URL.Path, "/v1/"), true
	})
}

// retire is stateFolder's, written down.
func retire(r *running) (record string, err error) {
	err = r.effects.Do(context.Background(), effect.File, verbRetire, journalFile, func() error {
		record, err = r.state.retire(r.began)
		return err
	})
	return record, err
}
