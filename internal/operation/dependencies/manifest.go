package dependencies

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// HookAnnotation of a HelmRelease says how long the hooks of its chart may take, as the operator knows it.
const HookAnnotation = "slipway.dev/hook-timeout"

// longest is above every time-out; a longer one is none.
const longest = math.MaxInt64 / 2

// deadlineValue is the field of a Job that bounds it; charts have values of this name.
const deadlineValue = "activeDeadlineSeconds"

// knownValues are values of charts that bound a hook, by the chart's name: a path of keys to a duration.
func knownValues() map[string][]string {
	return map[string][]string{
		"cert-manager": {"startupapicheck", "timeout"}, // the post-install Job that waits for the API: values.yaml of the chart
	}
}

// manifest is what is read of an object.
type manifest struct {
	Metadata struct {
		Name        string            `yaml:"name"`
		Namespace   string            `yaml:"namespace"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		DependsOn []reference `yaml:"dependsOn"`
		Interval  string      `yaml:"interval"`
		Timeout   string      `yaml:"timeout"`
		Install   struct {
			Timeout string `yaml:"timeout"`
		} `yaml:"install"`
		Upgrade struct {
			Timeout string `yaml:"timeout"`
		} `yaml:"upgrade"`
		ReleaseName     string `yaml:"releaseName"`
		TargetNamespace string `yaml:"targetNamespace"`
		Chart           struct {
			Spec struct {
				Chart string `yaml:"chart"`
			} `yaml:"spec"`
		} `yaml:"chart"`
		Values       map[string]any `yaml:"values"`
		Path         string         `yaml:"path"`
		Wait         any            `yaml:"wait"`
		HealthChecks []reference    `yaml:"healthChecks"`
		SourceRef    reference      `yaml:"sourceRef"`

		ActiveDeadlineSeconds int64 `yaml:"activeDeadlineSeconds"` // of a Job
	} `yaml:"spec"`
}

// object is the object of a manifest.
func (m manifest) object(kind, namespace string) (o Object, err error) {
	o = Object{Key: Key{kind, cmp.Or(m.Metadata.Namespace, namespace), m.Metadata.Name}, labels: m.Metadata.Labels,
		annotations: m.Metadata.Annotations, path: m.Spec.Path, waits: m.Spec.Wait == true, checks: m.Spec.HealthChecks,
		from: m.Spec.SourceRef}
	if err := checkName("metadata.name", o.Name); err != nil {
		return o, fmt.Errorf("%s: %w", kind, err)
	}
	if err := checkName("metadata.namespace", o.Namespace); err != nil {
		return o, fmt.Errorf("%s %s: %w", kind, o.Name, err)
	}
	for i, d := range m.Spec.DependsOn {
		on := Key{kind, cmp.Or(d.Namespace, o.Namespace), d.Name} // Flux's default: the object's own
		path := fmt.Sprintf("spec.dependsOn[%d].", i)
		if err := cmp.Or(checkName(path+"name", on.Name), checkName(path+"namespace", on.Namespace)); err != nil {
			return o, fmt.Errorf("%s: %w", o.Key, err)
		}
		o.DependsOn = append(o.DependsOn, on)
	}
	for _, f := range []struct {
		into    *field
		path, s string
	}{{&o.interval, "spec.interval", m.Spec.Interval}, {&o.timeout, "spec.timeout", m.Spec.Timeout},
		{&o.install, "spec.install.timeout", m.Spec.Install.Timeout},
		{&o.upgrade, "spec.upgrade.timeout", m.Spec.Upgrade.Timeout}} {
		if *f.into, err = duration(f.s); err != nil {
			return o, fmt.Errorf("%s: %s: %w", o.Key, f.path, err)
		}
	}
	if kind == HelmRelease {
		name := o.Name
		if m.Spec.TargetNamespace != "" {
			name = m.Spec.TargetNamespace + "-" + name
		}
		o.release = [2]string{cmp.Or(m.Spec.TargetNamespace, o.Namespace), cmp.Or(m.Spec.ReleaseName, name)}
		return o, m.hooks(&o)
	}
	o.target = m.Spec.TargetNamespace
	return o, nil
}

// hooks adds what a HelmRelease says of the hooks of its chart.
func (m manifest) hooks(o *Object) error {
	if value, ok := o.annotations[HookAnnotation]; ok {
		d, err := duration(value)
		if err != nil || !d.is {
			return fmt.Errorf("%s: annotation %s: %q is no duration, as 10m is", o.Key, HookAnnotation, value)
		}
		o.hooks = append(o.hooks, hook{"annotation " + HookAnnotation, d.value})
	}
	deadlines(m.Spec.Values, "spec.values", func(path string, d time.Duration) {
		o.hooks = append(o.hooks, hook{path, d})
	})
	var value any = m.Spec.Values
	known := knownValues()[m.Spec.Chart.Spec.Chart]
	for _, key := range known {
		value = asMap(value)[key]
	}
	if s, ok := value.(string); ok && len(known) > 0 {
		if d, err := duration(s); err == nil && d.is {
			o.hooks = append(o.hooks, hook{"spec.values." + strings.Join(known, "."), d.value})
		}
	}
	return nil
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// deadlines finds the values that bound a Job, in the order of their paths.
func deadlines(value any, path string, found func(string, time.Duration)) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if seconds, ok := seconds(v[key]); ok && key == deadlineValue {
				found(path+"."+key, seconds)
				continue
			}
			deadlines(v[key], path+"."+key, found)
		}
	case []any:
		for i, element := range v {
			deadlines(element, fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
}

func seconds(value any) (time.Duration, bool) {
	n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	return time.Duration(n) * time.Second, err == nil && n > 0 && n < int64(longest/time.Second)
}

// duration reads a duration as Flux has it; empty: there is none.
func duration(s string) (f field, err error) {
	switch {
	case s == "":
		return f, nil
	case strings.Contains(s, "${"):
		return field{unknown: s}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return f, fmt.Errorf("%q is no duration, as 10m is", s)
	}
	return field{value: d, is: true}, nil
}

// checkName refuses names that cannot be told from others in a list.
func checkName(path, name string) error {
	if name == "" {
		return fmt.Errorf("%s is missing", path)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s: %q is no name", path, name)
	}
	return nil
}
