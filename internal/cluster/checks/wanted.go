package checks

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// want is a value that the rest of the bootstrap counts on.
type want struct {
	path string // "ipam.mode"
	is   string
	why  string
}

// hint is what is to be written.
func (w want) hint() string { return w.path + ": " + w.is }

// unmetWant is a value that is not as it is wanted.
type unmetWant struct {
	want
	found string
}

func (u unmetWant) problem() string {
	return fmt.Sprintf("%s is %s, not %s: %s", u.path, u.found, u.is, u.why)
}

// unmetOf are the values that are not as they are wanted.
func unmetOf(values map[string]any, wants []want) (all []unmetWant) {
	for _, w := range wants {
		got, found, err := unstructured.NestedFieldNoCopy(values, strings.Split(w.path, ".")...)
		if is := fmt.Sprint(got); err != nil || !found || is != w.is {
			if !found {
				is = "missing"
			}
			all = append(all, unmetWant{w, is})
		}
	}
	return all
}

// MissingError means that who was asked does not have it.
type MissingError struct{ What string }

func (e *MissingError) Error() string { return e.What + " is not there" }
