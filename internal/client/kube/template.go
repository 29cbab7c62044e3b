package kube

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
)

// TemplateError is why a chart does not render with its values.
type TemplateError struct {
	Err error
	// Depends tells that it may render in the cluster: with kinds that this serves, or objects that it has.
	Depends bool
}

func (e *TemplateError) Error() string { return e.Err.Error() }
func (e *TemplateError) Unwrap() error { return e.Err }

var (
	// wantedKinds are those that a template asks for.
	wantedKinds = regexp.MustCompile(`\.Capabilities\.APIVersions\.Has\s+"([^"]+)"`)
	// failedTemplate is where an error of Helm says that it was met.
	failedTemplate = regexp.MustCompile(`\(([^\s():]+):\d+`)
	lookup         = regexp.MustCompile(`\blookup\b`)
)

// Template renders a chart with Helm's own engine as an installation does, without a cluster: with the chart's schema
// of values, and for a version of Kubernetes. What is wrong with the two is a *TemplateError.
func Template(ctx context.Context, archive []byte, name, namespace, version string,
	values func() (map[string]any, error)) error {
	kubernetes, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return err
	}
	render := func(kinds ...string) (*chart.Chart, error) {
		c, err := ReadChart(archive) // again: rendering changes it, and the values
		if err != nil {
			return nil, err
		}
		with, err := values()
		if err != nil {
			return nil, err
		}
		install := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
		install.ClientOnly, install.DryRun, install.DisableOpenAPIValidation = true, true, true
		install.ReleaseName, install.Namespace, install.KubeVersion = name, namespace, kubernetes
		install.APIVersions = kinds
		_, err = install.RunWithContext(ctx, c, with)
		return c, err
	}
	c, failed := render()
	if failed == nil || c == nil || ctx.Err() != nil {
		return failed
	}
	var kinds []string
	looks := map[string]bool{} // templates that look into the cluster
	for _, f := range templates(c) {
		for _, found := range wantedKinds.FindAllSubmatch(f.Data, -1) {
			kinds = append(kinds, string(found[1]))
		}
		looks[f.Name] = lookup.Match(f.Data)
	}
	_, err = render(kinds...)
	in := failedTemplate.FindStringSubmatch(failed.Error())
	return &TemplateError{oneLine(failed), err == nil || in != nil && looks[in[1]]}
}

// templates are those of a chart and of the charts that it depends on, by the names that errors have.
func templates(c *chart.Chart) (all []*chart.File) {
	for _, f := range c.Templates {
		all = append(all, &chart.File{Name: c.ChartFullPath() + "/" + f.Name, Data: f.Data})
	}
	for _, d := range c.Dependencies() {
		all = slices.Concat(all, templates(d))
	}
	return all
}

func oneLine(err error) error {
	return fmt.Errorf("%s", strings.Join(strings.Fields(err.Error()), " "))
}
