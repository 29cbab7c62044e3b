package originals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// workloads are the kinds whose Pods run all the time.
var workloads = []string{"Deployment", "DaemonSet", "StatefulSet"}

var errNoWorkload = errors.New("no Deployment, DaemonSet or StatefulSet with an image is in it")

// imagesOf lists the images of the workloads in a manifest.
func imagesOf(manifest []byte) ([]string, error) {
	found := map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		object, _ := document.(map[string]any)
		if kind, _ := object["kind"].(string); slices.Contains(workloads, kind) {
			collectImages(object["spec"], found)
		}
	}
	if len(found) == 0 {
		return nil, errNoWorkload
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// collectImages finds the containers below a value.
func collectImages(value any, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			if key == "containers" || key == "initContainers" {
				addImages(below, found)
			}
			collectImages(below, found)
		}
	case []any:
		for _, below := range v {
			collectImages(below, found)
		}
	}
}

func addImages(containers any, found map[string]bool) {
	list, _ := containers.([]any)
	for _, entry := range list {
		container, _ := entry.(map[string]any)
		if image, _ := container["image"].(string); image != "" {
			found[image] = true
		}
	}
}

// imagesOfChart lists the images of the workloads that a chart makes with its own values.
func imagesOfChart(c *chart.Chart) ([]string, error) {
	values, err := chartutil.ToRenderValues(c, nil, chartutil.ReleaseOptions{Name: c.Name(), Namespace: "kube-system",
		IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("render it: %w", err)
	}
	rendered, err := engine.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("render it: %w", err)
	}
	var manifest strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if base := path.Base(name); !strings.HasPrefix(base, "_") && !strings.HasSuffix(base, ".txt") {
			manifest.WriteString(rendered[name] + "\n---\n")
		}
	}
	return imagesOf([]byte(manifest.String()))
}
