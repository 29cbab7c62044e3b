package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/providers"
	"github.com/slipway-k8s/slipway/internal/render"
)

// FileError is a mistake in a file that users edit. It was found without asking anybody.
type FileError struct {
	Check   string // the doctor's check that reports the same
	File    string // its path; of a built-in file its name
	Line    int    // 0: not known
	Object  string // "TalosControlPlane k8s-control-plane: strategicPatches[4]"; empty: the file as a whole
	Problem string
	Hint    string // what to do next
}

// Error implements error: "manifests/cluster.yaml:140: TalosControlPlane k8s-control-plane: …".
func (e FileError) Error() string { return e.reason() + ": " + e.Hint }

func (e FileError) reason() string {
	text := e.File
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d", text, e.Line)
	}
	if e.Object != "" {
		text += ": " + e.Object
	}
	return text + ": " + e.Problem
}

// finding makes the mistake a finding of the doctor.
func (e FileError) finding() Finding { return failed(e.Hint, "%s", e.reason()) }

// CheckFiles finds every mistake in the files that the steps of these targets are made from, none meaning all steps, as far as it can be
// known without asking anybody. The doctor reports the same.
func (p *Plan) CheckFiles(ctx context.Context, targets []string) ([]FileError, error) {
	foreseen, err := p.Graph.Predict(ctx, flow.Memory(), targets, false)
	var sealed *flow.SealedError
	if errors.As(err, &sealed) {
		return nil, nil // the run itself says it better
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(foreseen, func(f flow.Prediction) bool { return f.Name == p.Cluster.Name() }) {
		return nil, nil
	}
	objects, err := renderedForChecks(p.b.cfg, p.b.sources)
	if err != nil {
		return nil, err
	}
	found := slices.Concat(checkManifests(p.b.cfg, p.b.sources, objects), checkPatches(p.b.cfg, p.b.sources, objects))
	// Where the schemas are not on this machine, the doctor fetches them.
	wrong, _, err := checkSchemas(p.b.cfg, p.b.sources, objects, func(of providers.Provider, name string) ([]byte, string, error) {
		return localProviderFile(p.b.cfg, of, name)
	})
	if unread := (*unreadSchemasError)(nil); err != nil && !errors.As(err, &unread) {
		return nil, err
	}
	return append(found, wrong...), nil
}

// renderedForChecks are the objects of the manifests with made-up values of what only a run knows.
func renderedForChecks(cfg config.Config, sources render.Sources) ([]*unstructured.Unstructured, error) {
	r, err := render.Manifests(cfg, sources, render.ManifestVariables(sources, "image", "eu-central", "192.0.2.1"))
	if err != nil {
		return nil, err
	}
	return r.Now, nil
}

// where is the file and the line of an object's field, and the object's name for people.
func where(sources render.Sources, o *unstructured.Unstructured, path ...any) FileError {
	s := sources.Cluster
	if line := lineIn(sources.HealthCheck, sources.Vars, o); line > 0 {
		s = sources.HealthCheck
	}
	return FileError{File: s.Name, Line: lineIn(s, sources.Vars, o, path...), Object: o.GetKind() + " " + o.GetName()}
}
