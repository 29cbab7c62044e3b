package flux

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/redact"
)

// split divides values into those that Git may have, and the others with their paths. Of a list that has one of those,
// nothing is left: Helm does not merge lists.
func split(values map[string]any, hide *redact.Redactor) (public, private map[string]any, paths []string) {
	public, private = map[string]any{}, map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		inner, is := value.(map[string]any)
		switch {
		case hide.Text(key) != key:
			private[key], paths = value, append(paths, "(a key that is a secret)")
		case is:
			below, hidden, at := split(inner, hide)
			for _, path := range at {
				paths = append(paths, key+"."+path)
			}
			if len(below) > 0 || len(inner) == 0 {
				public[key] = below
			}
			if len(hidden) > 0 {
				private[key] = hidden
			}
		case secret(key, value, hide):
			private[key], paths = value, append(paths, key)
		default:
			public[key] = value
		}
	}
	return public, private, paths
}

// secret reports whether a value of a key is a secret, or has one in it.
func secret(key string, value any, hide *redact.Redactor) bool {
	switch v := value.(type) {
	case string:
		return hide.Text(v) != v || v != "" && treeSecretName(key) || strings.Contains(v, "PRIVATE KEY-----")
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return secret(key, element, hide) })
	case map[string]any:
		_, private, _ := split(v, hide)
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

// ReleaseSecrets are those that Git does not have and that the tree of releases names: with the values that are
// secrets, and with the users and passwords of chart repositories.
func ReleaseSecrets(releases []Release) (all []*corev1.Secret, err error) {
	of := func(name string, data map[string][]byte) {
		all = append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Data: data})
	}
	names, order := repositoryNames(releases)
	for _, address := range order {
		u, err := url.Parse(address) // ReadReleases left out what cannot be read
		if err != nil || u.User == nil {
			continue
		}
		password, _ := u.User.Password()
		of(names[address], map[string][]byte{"username": []byte(u.User.Username()), "password": []byte(password)})
	}
	for _, r := range releases {
		if len(r.Private) == 0 {
			continue
		}
		values, err := yaml.Marshal(r.private)
		if err != nil { // its text may have a value
			return nil, fmt.Errorf("write the values of release %s that are secrets as YAML", r.Release)
		}
		of(r.Secret(), map[string][]byte{"values.yaml": values})
	}
	return all, nil
}
