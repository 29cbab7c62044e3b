package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// changeAnnotation has, on a ConfigMap, the change but for the content of its files.
	changeAnnotation = "slipway.dev/change"
	// BegunAnnotation has, on a ConfigMap, when the Job of its change began (RFC 3339).
	BegunAnnotation = "slipway.dev/begun"
)

// description is the change without the content of its files.
func (c Change) description() string {
	files := c.Files
	c.Files = map[string][]byte{}
	for name := range files {
		c.Files[name] = nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // plain data
	}
	return string(data)
}

// readChange is the change that a ConfigMap was made of, but for the consent.
func readChange(files *corev1.ConfigMap) (c Change, err error) {
	if err := json.Unmarshal([]byte(files.Annotations[changeAnnotation]), &c); err != nil {
		return c, fmt.Errorf("ConfigMap %s/%s is not one that a fleet has made: %w", files.Namespace, files.Name, err)
	}
	for _, name := range slices.Collect(maps.Keys(c.Files)) {
		data, is := files.BinaryData[key(name)]
		if !is {
			return c, fmt.Errorf("ConfigMap %s/%s has no %s: it was changed by hand", files.Namespace, files.Name, key(name))
		}
		c.Files[name] = data
	}
	if c.Name() != files.Name {
		return c, fmt.Errorf("ConfigMap %s/%s does not have the content that its name stands for: it was changed by hand",
			files.Namespace, files.Name)
	}
	return c, nil
}

// consents reports whether a Job was made with consent.
func consents(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, consent)
	})
}
