package main

import (
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
)

// usageError is a mistake in the arguments or the configuration: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// didYouMean is "; did you mean X?", or nothing where no word is similar.
func didYouMean(prefix, name string, words []string) string {
	nearest := flow.Nearest(name, words)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, nearest)
}
