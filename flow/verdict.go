package flow

import (
	"errors"
	"fmt"
)

// Answer is one of the three things that a Verify can find.
type Answer string

// The three answers.
const (
	AnswerUnknown Answer = "unknown" // it could not be found out
	AnswerHolds   Answer = "holds"   // what the step made is there, as recorded
	AnswerGone    Answer = "gone"    // it is certainly not there any more, or not as recorded
)

// Verdict is what a Verify says about a recorded output. Its zero value means
// "unknown", so that a forgotten return value stops a run instead of
// making something twice.
type Verdict struct {
	answer Answer
	reason string
	err    error
}

// Holds says that what the step made exists as recorded.
func Holds() Verdict { return Verdict{answer: AnswerHolds} }

// Gone says that what the step made is certainly gone or changed, and
// what was seen. The step will run again.
func Gone(format string, args ...any) Verdict {
	return Verdict{answer: AnswerGone, reason: sprintf(format, args)}
}

// Unknown says that this could not be found out, and why. The run stops.
func Unknown(err error) Verdict {
	if err == nil {
		err = errors.New("no reason was given")
	}
	return Verdict{answer: AnswerUnknown, reason: err.Error(), err: err}
}

// Answer says which of the three it is.
func (v Verdict) Answer() Answer {
	if v.answer == "" {
		return AnswerUnknown
	}
	return v.answer
}

// Reason is what was seen; empty when the record holds.
func (v Verdict) Reason() string { return v.reason }

// Err is the error given to Unknown, or one in its place; nil for the other
// two answers.
func (v Verdict) Err() error {
	if v.Answer() != AnswerUnknown {
		return nil
	}
	if v.err == nil {
		return errors.New("the check gave no answer")
	}
	return v.err
}

// String is the answer with its reason.
func (v Verdict) String() string {
	if v.reason == "" {
		return string(v.Answer())
	}
	return fmt.Sprintf("%s: %s", v.Answer(), v.reason)
}

// sprintf formats, and takes a text without arguments as it is, so that a
// per cent sign in it stays one.
func sprintf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}
