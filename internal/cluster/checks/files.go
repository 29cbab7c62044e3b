// Package checks finds mistakes in the files that operators edit, without a request.
package checks

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// FileError is a mistake in a file that users edit. It was found without any request.
type FileError struct {
	Check   string // the doctor's check that reports the same
	File    string // its path; of a built-in file its name
	Line    int    // 0: not known
	Object  string // "TalosControlPlane k8s-control-plane: strategicPatches[4]"; empty: the file as a whole
	Problem string
	Hint    string // what to do next
}

// Error implements error: "manifests/cluster.yaml:140: TalosControlPlane k8s-control-plane: …".
func (e FileError) Error() string { return e.Reason() + ": " + e.Hint }

// Reason is the mistake without the hint.
func (e FileError) Reason() string {
	text := e.File
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d", text, e.Line)
	}
	if e.Object != "" {
		text += ": " + e.Object
	}
	return text + ": " + e.Problem
}

// Manifests finds every mistake in the manifests, as far as it can be known without a request. The doctor reports the
// same.
func Manifests(cfg config.Config, sources render.Sources) ([]FileError, error) {
	objects, err := Rendered(cfg, sources)
	if err != nil {
		return nil, err
	}
	found := slices.Concat(Objects(cfg, sources, objects), Patches(cfg, sources, objects))
	// Where the schemas are not on this machine, the doctor fetches them.
	wrong, _, err := Schemas(cfg, sources, objects, func(of capi.Provider, name string) ([]byte, string, error) {
		return LocalProviderFile(cfg, of, name)
	})
	if unread := (*unreadSchemasError)(nil); err != nil && !errors.As(err, &unread) {
		return nil, err
	}
	for _, w := range wrong {
		known := slices.ContainsFunc(found, func(e FileError) bool {
			return e.File == w.File && e.Line == w.Line && e.Object == w.Object
		})
		if !known {
			found = append(found, w)
		}
	}
	return found, nil
}

// Rendered are the objects of the manifests with made-up values of what only a run knows.
func Rendered(cfg config.Config, sources render.Sources) ([]*unstructured.Unstructured, error) {
	r, err := render.Manifests(cfg, sources, render.MadeUpVariables(cfg, sources))
	if err != nil {
		return nil, err
	}
	pools, err := render.Workers(cfg, sources, render.MadeUpVariables(cfg, sources), nil)
	return append(r.Now, pools...), err
}

// where is the file and the line of an object's field, and the object's name for people.
func where(sources render.Sources, o *unstructured.Unstructured, path string) FileError {
	s := sourceOf(sources, o)
	return FileError{File: s.Name, Line: lineIn(s, sources.Vars, o, path), Object: o.GetKind() + " " + o.GetName()}
}

// sourceOf is the file that an object was made from.
func sourceOf(sources render.Sources, o *unstructured.Unstructured) render.Source {
	switch {
	case ofPool(o):
		return sources.WorkerPool
	case lineIn(sources.HealthCheck, sources.Vars, o, "") > 0:
		return sources.HealthCheck
	}
	return sources.Cluster
}

// ofPool tells whether an object is one of a worker pool.
func ofPool(o *unstructured.Unstructured) bool { return o.GetLabels()[capi.WorkerPoolLabel] != "" }
