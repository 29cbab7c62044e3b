// Package usage has the error of a mistake in the arguments or the configuration: exit code 2, and nothing was changed.
package usage

import (
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
)

// Error is a mistake in the arguments or the configuration: exit code 2.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error as fmt.Errorf does.
func Errorf(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...)}
}

// DidYouMean is "; did you mean X?", or nothing where no word is similar.
func DidYouMean(prefix, name string, words []string) string {
	nearest := flow.Nearest(name, words)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, nearest)
}
