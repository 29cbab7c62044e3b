package kubelet

import (
	"context"
	"os"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// noteEvery is how often a running container's log is looked at: followers see a line as late as that.
	noteEvery = 250 * time.Millisecond
	// maxMarks is how many times of one log are known: half an hour of a program that never pauses. Beyond it, of the
	// older half, every second one is given up.
	maxMarks = 8192
)

// containerLog is what one run of a container writes. The process has the file to itself, so when a
// line was written is known to noteEvery: all lines of one look share its time, a nanosecond apart for
// each byte, so that no two have the same.
type containerLog struct {
	path string
	from int64 // where in the file the run begins

	mu      sync.Mutex
	marks   []logMark
	ended   bool
	changed notifier
}

// logMark says that the file had so many bytes at a time.
type logMark struct {
	to int64
	at time.Time
}

// newContainerLog is the log of a run that has just been started. Of a file that was put
// aside at the start the whole is this run's.
func newContainerLog(path string, sizeBefore int64) *containerLog {
	if size := fileSize(path); size < sizeBefore {
		sizeBefore = 0
	}
	return &containerLog{path: path, from: sizeBefore}
}

// putAside follows the file, of which the next run has found that it was too large, to where it was put.
func (l *containerLog) putAside(sizeBefore int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fileSize(l.path) < sizeBefore {
		l.path += ".1"
	}
}

// open opens the file for reading.
func (l *containerLog) open() (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return os.Open(l.path)
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// keep notes the log's growth until ctx is done, and then that it has ended.
func (l *containerLog) keep(ctx context.Context) {
	for sleep(ctx, noteEvery) {
		l.note(time.Now(), false)
	}
	l.note(time.Now(), true)
}

// note looks at the file at a time; end: for the last time.
func (l *containerLog) note(at time.Time, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := fileSize(l.path)
	if size > l.size() {
		l.marks = append(l.marks, logMark{size, l.after(at)})
	} else if !end {
		return
	}
	l.ended = l.ended || end
	if len(l.marks) > maxMarks {
		l.marks = thinned(l.marks)
	}
	l.changed.raise()
}

// after is the time, or a later one that no line has yet: two looks may follow each
// other at once. It is called under the lock.
func (l *containerLog) after(at time.Time) time.Time {
	n := len(l.marks)
	if n == 0 {
		return at
	}
	begun := l.from
	if n > 1 {
		begun = l.marks[n-2].to
	}
	if taken := l.marks[n-1].at.Add(time.Duration(l.marks[n-1].to - begun)); taken.After(at) {
		return taken
	}
	return at
}

// thinned gives up every second mark of the older half.
func thinned(marks []logMark) []logMark {
	half := len(marks) / 2
	kept := make([]logMark, 0, len(marks))
	for i := 1; i < half; i += 2 {
		kept = append(kept, marks[i])
	}
	return append(kept, marks[half:]...)
}

// size is up to where the log is known. It is called under the lock.
func (l *containerLog) size() int64 {
	if len(l.marks) == 0 {
		return l.from
	}
	return l.marks[len(l.marks)-1].to
}

// state is up to where the log is known, and whether that is all; more is closed when that changes.
func (l *containerLog) state() (size int64, ended bool, more <-chan struct{}) {
	more = l.changed.next()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size(), l.ended, more
}

// timeAt is when the line that begins there was written.
func (l *containerLog) timeAt(offset int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].to > offset })
	if i == len(l.marks) {
		return time.Now()
	}
	begun := l.from
	if i > 0 {
		begun = l.marks[i-1].to
	}
	return l.marks[i].at.Add(time.Duration(offset - begun))
}

// since is where to begin to read for what was written from a time on: at or before it.
func (l *containerLog) since(t time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.marks, t, func(m logMark, t time.Time) int { return m.at.Compare(t) })
	// The lines of a mark are later than the mark, by less than a look's growth in nanoseconds.
	if i -= 2; i < 0 {
		return l.from
	}
	return l.marks[i].to
}
