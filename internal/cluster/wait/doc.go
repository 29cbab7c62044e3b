// Package wait looks at something until it is as it should be, and says what is missing until then: with a deadline, a
// pace and the reason that was observed last. It also repeats requests that failed in passing.
package wait
