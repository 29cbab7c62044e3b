package effect

import "github.com/slipway-k8s/slipway/flow"

// CrashVariable is the environment variable that says where a run is to end itself. Only a command that is built with
// fault injection accepts it.
const CrashVariable = "SLIPWAY_CRASH"

// Point is a moment of a call.
type Point string

// The points, in the order in which they come.
const (
	PointBefore  Point = "before"  // the call is written down and has not left
	PointApplied Point = "applied" // the reply has arrived, its caller does not have it
	// the caller has it; the next is a save of the journal, another call, or the end of the run
	PointReplied Point = "replied"
	PointTorn    Point = "torn"  // half of the next write of the journal is in its temporary file
	PointSaved   Point = "saved" // that write is whole, in place and flushed
)

// Points lists them.
func Points() []Point { return []Point{PointBefore, PointApplied, PointReplied, PointTorn, PointSaved} }

// Faults ends the process at points that it chooses. The Recorder calls Reached and End with no other call leaving at
// that moment.
type Faults interface {
	// Reached hears of every point of every call. Where it returns end, the Recorder writes a Killed line with the place
	// and calls End. The line is the call's at PointBefore and PointApplied, and empty otherwise.
	Reached(point Point, line Line) (place string, end bool)
	// Disk returns the disk that the journal is written on. It calls torn when it has written half a file on purpose.
	Disk(disk flow.Disk, torn func()) flow.Disk
	// End ends the process, and its process group where it leads one. It does not return.
	End()
}

// reached is called with r.mu held.
func (r *Recorder) reached(point Point, line Line) {
	if r.options.Faults == nil {
		return
	}
	if place, end := r.options.Faults.Reached(point, line); end {
		r.write(Line{Seq: r.seq, Phase: Killed, Error: place})
		r.options.Faults.End()
	}
}

func (r *Recorder) reachedAlone(point Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached(point, Line{})
}

// Disk is the disk that the journal is written on: disk itself in a run without Faults.
func (r *Recorder) Disk(disk flow.Disk) flow.Disk {
	if r == nil || r.options.Faults == nil {
		return disk
	}
	return r.options.Faults.Disk(disk, func() { r.reachedAlone(PointTorn) })
}

// Saved is called after each write of the journal that was flushed.
func (r *Recorder) Saved() {
	if r != nil {
		r.reachedAlone(PointSaved)
	}
}

// Close is called when the run is over.
func (r *Recorder) Close() {
	if r != nil {
		r.reachedAlone(PointReplied)
	}
}
