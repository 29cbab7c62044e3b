// Package flow runs a typed graph of steps and remembers what was done, so
// that a run that was killed anywhere goes on where it stopped.
//
// # The argument is the edge
//
// A step is a function with typed arguments and a typed result. The graph is
// built by handing the handle of one step to the next:
//
//	g := flow.New("house")
//	site := flow.Add(g, "site", buySite)               // *Step[Site]
//	walls := flow.Add1(g, "walls", raiseWalls, site)   // func(ctx, say, Site) (Walls, error)
//	roof := flow.Add1(g, "roof", putRoof, walls).Deadline(time.Hour)
//
// The compiler checks the edges, and a step can read nothing that it did not
// declare. Steps that do not hang on each other run at the same time.
//
// Outputs travel as JSON, also within one run: what a step hands on is what
// the journal will give back, so a resumed run cannot see anything else than
// the first one did. Each dependent gets a copy of its own. An output is plain
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
//   - its Verify, where it has one, says that the world agrees.
//
// Verify has three answers. [Holds] and [Gone] speak for themselves; [Unknown]
// (the zero Verdict) means that the world could not be asked. That stops the
// run with an [UnverifiableError]: it is never a licence to create again.
//
// So a changed Spec runs exactly that step again, and what hangs on it only if
// its output came out differently. An edge made with After orders and does
// nothing else: that the step before it ran again is no reason to repeat a
// step, whose own Verify is asked anyway. A step that must follow another's
// change takes its output as an argument, or names it with RerunAfter.
//
// A record "started" is written before the work and a record "done" after it,
// each before anything else happens, and neither is stopped by cancellation. A
// step found "started", "failed" or "interrupted" is run again. A crash between
// the work and its record is therefore possible and a step's function must be
// an "ensure": it looks for what it would make and adopts it. In return, losing
// the journal costs time and never correctness.
//
// # The point of no return
//
// Once a step marked with Seal is done, nothing before it is ever verified or
// run again, and asking for such a step is refused with a [SealedError]. Steps
// after it that need an output from before it get the recorded one. Where the
// step can tell from more than its record that it went past that point
// ([Step.ResumeWhen]), that counts too, so that a run that died in it is gone on
// with before anything else is looked at.
//
// A step marked with ExemptFromSeal is not passed over. It depends on nothing
// that the sealed step takes away, so it is verified and run again as before,
// now after the sealed step in place of before it.
//
// # Ends
//
// When a step fails, what runs is let finish and nothing new starts. When the
// context is cancelled, running steps are cancelled and recorded as
// interrupted, which is not a failure. A step that does not follow its context
// (a library without one, say) is left behind after [Options].Grace.
package flow
