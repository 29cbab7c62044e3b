package fakeenv

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/repo"
)

// Chart is one of a single workload that is named like it.
type Chart struct {
	Name, Version, Kind string
	More                string // further objects
}

// Charts serves charts as a repository, from a folder that it fills.
func Charts(dir string, charts ...Chart) (*httptest.Server, error) {
	for _, c := range charts {
		manifest := fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: {{ .Chart.Name }}}\n"+
			"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, "+
			"image: i}]}}}\n%s", c.Kind, c.More)
		ch := &chart.Chart{
			Metadata:  &chart.Metadata{APIVersion: "v2", Name: c.Name, Version: c.Version},
			Templates: []*chart.File{{Name: "templates/workload.yaml", Data: []byte(manifest)}},
		}
		if _, err := chartutil.Save(ch, dir); err != nil {
			return nil, err
		}
	}
	index, err := repo.IndexDirectory(dir, "")
	if err != nil {
		return nil, err
	}
	if err := index.WriteFile(filepath.Join(dir, "index.yaml"), 0o600); err != nil {
		return nil, err
	}
	return httptest.NewServer(http.FileServer(http.Dir(dir))), nil
}
