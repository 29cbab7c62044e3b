package checks

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// want is a value that the rest of the bootstrap counts on.
type want struct {
	path []string
	is   string
	why  string
}

func (w want) dotted() string { return strings.Join(w.path, ".") }

// unmetWant is a value that is not as it is wanted.
type unmetWant struct {
	want want
	is   string
}

func (u unmetWant) problem() string {
	return fmt.Sprintf("%s is %s, not %s: %s", u.want.dotted(), u.is, u.want.is, u.want.why)
}

// unmetOf is the first value that is not as it is wanted; nil: all are.
func unmetOf(values map[string]any, wants []want) *unmetWant {
	for _, w := range wants {
		got, found, err := unstructured.NestedFieldNoCopy(values, w.path...)
		if is := fmt.Sprint(got); err != nil || !found || is != w.is {
			if !found {
				is = "missing"
			}
			return &unmetWant{w, is}
		}
	}
	return nil
}

// MissingError means that who was asked does not have it.
type MissingError struct{ What string }

func (e *MissingError) Error() string { return e.What + " is not there" }
