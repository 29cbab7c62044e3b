package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// environment resolves what a container's env and envFrom say. Its errors are those that keep a container in
// CreateContainerConfigError.
func (p *pod) environment(spec corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range spec.EnvFrom {
		values, err := p.envFrom(from)
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			env[from.Prefix+key] = string(value)
		}
	}
	for _, e := range spec.Env {
		if e.ValueFrom == nil {
			env[e.Name] = expand(e.Value, env)
			continue
		}
		value, found, err := p.envValue(spec, *e.ValueFrom)
		if err != nil {
			return nil, err
		}
		if found {
			env[e.Name] = value
		}
	}
	return env, nil
}

func (p *pod) envFrom(from corev1.EnvFromSource) (map[string][]byte, error) {
	var c content
	var err error
	switch {
	case from.SecretRef != nil:
		c, err = p.read(secretKind, from.SecretRef.Name, from.SecretRef.Optional)
	case from.ConfigMapRef != nil:
		c, err = p.read(configMapKind, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	}
	return c.values, err
}

// envValue returns a value from elsewhere; found is false for an optional one that is not there.
func (p *pod) envValue(spec corev1.Container, from corev1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = p.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = p.resourceField(from.ResourceFieldRef, &spec)
		return value, true, err
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return p.keyOf(secretKind, r.Name, r.Key, r.Optional)
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		return p.keyOf(configMapKind, r.Name, r.Key, r.Optional)
	}
	return "", false, nil
}

// keyOf returns a value of a Secret or a ConfigMap.
func (p *pod) keyOf(kind, name, key string, optional *bool) (value string, found bool, err error) {
	c, err := p.read(kind, name, optional)
	if err != nil {
		return "", false, err
	}
	data, found := c.values[key]
	if !found && !ptr.Deref(optional, false) {
		title := map[string]string{secretKind: "Secret", configMapKind: "ConfigMap"}[kind]
		err = fmt.Errorf("couldn't find key %s in %s %s/%s", key, title, p.namespace, name)
	}
	return string(data), found, err
}

// field returns a field of the Pod for the downward API.
func (p *pod) field(path string) (string, error) {
	api := p.seen()
	if key, ok := subscript(path, "metadata.labels"); ok {
		return api.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return api.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return api.Name, nil
	case "metadata.namespace":
		return api.Namespace, nil
	case "metadata.uid":
		return string(api.UID), nil
	case "metadata.labels":
		return quotedLines(api.Labels), nil
	case "metadata.annotations":
		return quotedLines(api.Annotations), nil
	case "spec.nodeName":
		return p.k.cfg.Node, nil
	case "spec.serviceAccountName":
		return serviceAccount(api), nil
	case "status.hostIP", "status.hostIPs":
		return p.k.cfg.InternalIP, nil
	case "status.podIP", "status.podIPs":
		if api.Spec.HostNetwork {
			return p.k.cfg.InternalIP, nil
		}
		if network := p.network(); network != nil {
			return network.Address().String(), nil
		}
		return "127.0.0.1", nil // where the Pod's processes listen; the API has no address
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

// subscript returns the key of field['key'].
func subscript(path, field string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// resourceField returns a container's resource as the downward API counts it: in units of the divisor, rounded up, and
// the Node's own where the container has no limit.
func (p *pod) resourceField(r *corev1.ResourceFieldSelector, own *corev1.Container) (string, error) {
	spec := own
	for _, c := range p.all() {
		if r.ContainerName == c.spec.Name {
			spec = &c.spec
		}
	}
	if spec == nil {
		return "", fmt.Errorf("resourceFieldRef: the Pod has no container %q", r.ContainerName)
	}
	kind, name, _ := strings.Cut(r.Resource, ".")
	resources := corev1.ResourceList{}
	switch kind {
	case "limits":
		maps.Copy(resources, p.k.cfg.Capacity)
		maps.Copy(resources, spec.Resources.Limits)
	case "requests":
		maps.Copy(resources, spec.Resources.Requests)
	default:
		return "", fmt.Errorf("resourceFieldRef: unknown resource %q", r.Resource)
	}
	quantity, divisor := resources[corev1.ResourceName(name)], r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) { // counted in thousandths, so that a divisor of 1m is exact
		return strconv.FormatInt(ceilDivide(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceilDivide(quantity.Value(), divisor.Value()), 10), nil
}

func ceilDivide(a, b int64) int64 { return (a + b - 1) / b }

// expand replaces $(NAME) by the variable's value. $$ stands for one dollar, and
// an unknown name stays as it is written.
func expand(text string, env map[string]string) string {
	var b strings.Builder
	for {
		dollar := strings.IndexByte(text, '$')
		if dollar < 0 || dollar == len(text)-1 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:dollar])
		text = text[dollar:]
		end := strings.IndexByte(text, ')')
		switch {
		case text[1] == '$':
			b.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && end > 0:
			if value, ok := env[text[2:end]]; ok {
				b.WriteString(value)
			} else {
				b.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			b.WriteByte('$')
			text = text[1:]
		}
	}
}

// quotedLines writes a map as the downward API does: sorted lines of key="value".
func quotedLines(values map[string]string) string {
	lines := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
	}
	return strings.Join(lines, "\n")
}
