// Package wait polls, or watches, until a condition holds, and reports until then what is missing: with a deadline, an
// interval and the reason that was observed last. It also repeats requests that failed in passing.
package wait
