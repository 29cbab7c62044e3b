package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Effect are the calls of a run that are called the same.
type Effect struct {
	Effect     string        `json:"effect"` // "hetzner create firewalls/k8s"
	System     effect.System `json:"world"`
	Step       string        `json:"step,omitempty"` // of the first
	First      time.Time     `json:"first"`
	Times      int           `json:"times"`
	Failed     int           `json:"failed,omitempty"`
	Unanswered int           `json:"unanswered,omitempty"` // the run ended before the reply
}

// Effects are the lines of a run: the one whose id begins like that, or the last
// that changed anything.
func Effects(s statedir.Dir, wanted string) (run string, lines []effect.Line, err error) {
	ids, err := IDs(s)
	if err != nil {
		return "", nil, err
	}
	if wanted != "" {
		i, err := find(s, ids, wanted)
		if err != nil {
			return "", nil, err
		}
		ids = ids[i : i+1]
	}
	for _, id := range slices.Backward(ids) {
		lines, err := readEffects(s.Path(filepath.Join(statedir.RunsFolder, id, statedir.EffectsFile)))
		if err != nil || len(lines) > 0 || wanted != "" {
			return id, lines, err
		}
	}
	return "", nil, fmt.Errorf("no run in %s has changed anything yet", s)
}

func readEffects(path string) ([]effect.Line, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // of an earlier version's run
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := effect.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return lines, nil
}

// CountEffects counts what is called the same.
func CountEffects(lines []effect.Line) []Effect {
	rows := []Effect{}
	at := map[string]int{}
	for _, l := range lines {
		i, known := at[l.Name()]
		switch {
		case l.Phase == effect.Leaves && !known:
			i = len(rows)
			at[l.Name()] = i
			rows = append(rows, Effect{Effect: l.Name(), System: l.System, Step: l.Step, First: l.Time})
			fallthrough
		case l.Phase == effect.Leaves:
			rows[i].Times++
			rows[i].Unanswered++
		case l.Phase == effect.Applied && known:
			rows[i].Unanswered--
		case l.Phase == effect.Failed && known:
			rows[i].Unanswered--
			rows[i].Failed++
		}
	}
	return rows
}
