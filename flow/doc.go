// Package flow runs a typed graph of steps and remembers what was done, so
// that a run that was killed at any point resumes where it stopped.
//
// # Arguments are edges
//
// A step is a function with typed arguments and a typed result. A [Task] is a
// step with all that belongs to it, in one literal. The graph is built by handing
// the handle of one step to the next:
//
//	g := flow.New("house")
//	site := flow.Add(g, flow.Task[Site]{Name: "site", Run: flow.Do(buySite)}) // *Step[Site]
//	walls := flow.Add(g, flow.Task[Walls]{
//		Name: "walls",
//		Doc:  "the walls stand, with as many storeys as are configured",
//		Run:  flow.With1(raiseWalls, site), // func(ctx, say, Site) (Walls, error)
//		Spec: storeys,
//	})
//	roof := flow.Add(g, flow.Task[Roof]{Name: "roof", Run: flow.With1(putRoof, walls), Deadline: time.Hour})
//
// The compiler checks the edges, and a step can read nothing that it did not
// declare. Steps that do not depend on each other run at the same time.
//
// Outputs are passed on as JSON, also within one run: a dependent step gets
// exactly what the journal returns to a resumed run. Each dependent gets a copy
// of its own. An output is plain
// data and references (ids, paths, identities), never a secret: it is written
// to the journal. The same holds for a Spec.
//
// # What done means
//
// A step is done, and is not run again, when all of this is true:
//
//   - its record in the journal says done, for the same hash of its Spec and of
//     the outputs of the steps that are its arguments;
//   - the recorded output restores into today's type without loss;
//   - its Verify, where it has one, says that the actual state matches it.
//
// Verify has three answers. [Holds]: what the step made exists as recorded.
// [Gone]: it certainly does not, and the step runs again. [Unknown] (the zero
// Verdict): this could not be found out. That stops the run with an
// [UnverifiableError]; a step is never run again for want of an answer.
//
// So a changed Spec runs exactly that step again, and the steps that take its
// output only if the output is a different one.
//
// # Edges without data
//
// A step can be ordered after another one without taking its output:
//
//   - [Step.RerunAfter]: it runs again when the other's output changes.
//   - [Step.After]: order alone. That the other ran again is no reason to run
//     this step again; its own Verify is called in any case.
//   - [Step.OrderAfter]: order in a run that wants both. A run that wants this
//     step does not run the other one for it.
//
// A Task has fields of the same names. Its Before orders other steps after this one, for a step that is added to a plan
// of another author; [Step.Replace] gives a step of such a plan another function or another Spec.
//
// # Crashes
//
// A record "started" is written before the work and a record "done" after it,
// each before anything else happens, and neither is stopped by cancellation. A
// step found "started", "failed" or "interrupted" is run again. A crash between
// the work and its record is therefore possible and a step's function must be
// an "ensure": it looks for what it would make and adopts it. In return, losing
// the journal costs time and never correctness.
//
// # Journals
//
// A [Journal] loads, saves and locks snapshots. One that is also an [Appender] is given only the records that changed,
// so that what a run writes grows with the number of its steps. [Folder] and [Memory] are. A Folder appends a line with
// a checksum for each change and flushes it; the run's first change, and one for which the lines have become four times
// as long as the snapshot, replace the file by a snapshot, and so does the end of the run. A last line that a crash
// left incomplete is dropped; other damage is a [CorruptError].
//
// # The point of no return
//
// Once a step marked with Seal is done, nothing before it is ever verified or
// run again, and asking for such a step is refused with a [SealedError]. Steps
// after it that need an output from before it get the recorded one. Where the
// step can tell from more than its record that it went past that point
// ([Task].ResumeWhen), that counts too, so that the next run resumes a run that
// was killed in it before it looks at anything else.
//
// A step marked with ExemptFromSeal is not skipped. It depends on nothing that the sealed step deletes or moves, so it
// is verified and run again as before, now after the sealed step in place of before it.
//
// # Failure and cancellation
//
// When a step fails, what runs is let finish and nothing new starts. When the
// context is cancelled, running steps are cancelled and recorded as
// interrupted, which is not a failure. A step that does not follow its context
// (a library without one, say) is left behind after [Options].Grace.
package flow
