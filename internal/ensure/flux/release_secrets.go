package flux

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/redact"
)

// public is values without those that Git must not have, whose paths it returns. Of a list that has one, nothing is
// left: Helm does not merge lists.
func public(values map[string]any, hide *redact.Redactor) (left map[string]any, private []string) {
	left = map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		inner, is := values[key].(map[string]any)
		switch {
		case hide.Text(key) != key:
			private = append(private, "(a key that is a secret)")
		case is:
			below, paths := public(inner, hide)
			for _, path := range paths {
				private = append(private, key+"."+path)
			}
			if len(below) > 0 || len(inner) == 0 {
				left[key] = below
			}
		case secret(key, values[key], hide):
			private = append(private, key)
		default:
			left[key] = values[key]
		}
	}
	return left, private
}

// without is values but for those that left has, too.
func without(values, left map[string]any) map[string]any {
	rest := map[string]any{}
	for key, value := range values {
		kept, there := left[key]
		inner, is := value.(map[string]any)
		below, also := kept.(map[string]any)
		switch {
		case !there:
			rest[key] = value
		case is && also:
			if more := without(inner, below); len(more) > 0 {
				rest[key] = more
			}
		}
	}
	return rest
}

// secret reports whether a value of a key is a secret, or has one in it.
func secret(key string, value any, hide *redact.Redactor) bool {
	switch v := value.(type) {
	case string:
		return hide.Text(v) != v || v != "" && treeSecretName(key) || strings.Contains(v, "PRIVATE KEY-----")
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return secret(key, element, hide) })
	case map[string]any:
		_, private := public(v, hide)
		return len(private) > 0 || v["value"] != nil && treeSecretName(fmt.Sprint(v["name"])) // a variable of a container
	}
	return false
}

// treeSecretName reports whether what is called so is a secret. What names a Secret, such as existingSecret, is none.
func treeSecretName(key string) bool {
	key = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(key))
	return slices.ContainsFunc([]string{"password", "passwd", "passphrase", "token", "apikey", "privatekey",
		"secretkey", "secretaccesskey", "clientsecret"}, func(end string) bool { return strings.HasSuffix(key, end) })
}
