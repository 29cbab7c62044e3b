package flux

import (
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

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
